package main

import "testing"

// The Rust harness has the same test with the same numbers: both make the same data.
func TestGoldenData(t *testing.T) {
	digest := func(bytes []byte) uint64 {
		sum := uint64(0)
		for _, b := range bytes {
			sum = mix(sum ^ uint64(b))
		}
		return sum
	}
	d := newData(301, 1000)
	key := d.key(12345)
	found := [4]uint64{digest(key[:]), digest(d.value(12345, 6)), newOrder(1000003, 9).at(77), draw(9, 5)}
	if found != goldenData {
		t.Fatalf("found %v", found)
	}
	if index, isOurs := d.index(key[:]); index != 12345 || !isOurs {
		t.Fatal("a key does not know its index")
	}
}

var goldenData = [4]uint64{13_339_216_198_225_707_266, 6_375_583_973_889_143_251, 444_395, 2_114_146_066_760_625_150}

func TestLatencyIsKeptToThreeDigits(t *testing.T) {
	var l latencies
	for ns := int64(1); ns <= 100_000; ns++ {
		l.record(ns)
	}
	for quantile, want := range map[float64]float64{0.5: 50_000, 0.99: 99_000, 0.999: 99_900} {
		if got := float64(l.at(quantile)); got < want*0.998 || got > want*1.002 {
			t.Errorf("quantile %v is %v, want about %v", quantile, got, want)
		}
	}
	if l.at(1) > 100_000 || l.max != 100_000 {
		t.Errorf("the longest is %v", l.max)
	}
}
