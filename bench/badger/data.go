package main

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Keys and values, byte for byte those of ../src/data.rs; see there for their layout.

const (
	keyBytes          = 16
	valueBytesMin     = 8
	poolStarts        = 1 << 20
	halfFragmentBytes = 50
	golden            = 0x9e3779b97f4a7c15
)

func mix(x uint64) uint64 {
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

type data struct {
	seed       uint64
	valueBytes int
	pool       []byte
}

func newData(seed uint64, valueBytes int) *data {
	wanted := poolStarts + valueBytes
	pool := make([]byte, 0, wanted+2*halfFragmentBytes)
	counter := seed
	for len(pool) < wanted {
		start := len(pool)
		for len(pool) < start+halfFragmentBytes {
			counter += golden
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], mix(counter))
			missing := start + halfFragmentBytes - len(pool)
			pool = append(pool, word[:min(missing, 8)]...)
		}
		pool = append(pool, pool[start:]...)
	}
	return &data{seed: seed, valueBytes: max(valueBytes, valueBytesMin), pool: pool}
}

func (d *data) key(index uint64) [keyBytes]byte {
	var key [keyBytes]byte
	binary.BigEndian.PutUint64(key[:8], mix(index^d.seed))
	binary.BigEndian.PutUint64(key[8:], index)
	return key
}

// index is the number of a key, and whether the key is one of ours.
func (d *data) index(key []byte) (uint64, bool) {
	if len(key) != keyBytes {
		return 0, false
	}
	index := binary.BigEndian.Uint64(key[8:])
	return index, d.key(index) == [keyBytes]byte(key)
}

func (d *data) parts(index uint64, generation uint32) ([8]byte, []byte) {
	stamp := mix(mix(index^d.seed) + uint64(generation)*golden)
	start := int(stamp % poolStarts)
	var head [8]byte
	binary.BigEndian.PutUint64(head[:], stamp)
	return head, d.pool[start : start+d.valueBytes-valueBytesMin]
}

// value is a fresh slice: Badger keeps what it is given until the transaction is over.
func (d *data) value(index uint64, generation uint32) []byte {
	head, body := d.parts(index, generation)
	return append(append(make([]byte, 0, d.valueBytes), head[:]...), body...)
}

func (d *data) matches(index uint64, generation uint32, value []byte) bool {
	head, body := d.parts(index, generation)
	return len(value) == d.valueBytes && bytes.Equal(value[:8], head[:]) && bytes.Equal(value[8:], body)
}

// draw is the random number that follows from salt for one step.
func draw(salt, step uint64) uint64 { return mix(salt + (step+1)*golden) }

// order is a permutation of 0..count.
type order struct{ count, factor, offset uint64 }

func newOrder(count, salt uint64) order {
	count = max(count, 1)
	draw := salt
	for {
		draw = mix(draw + golden)
		factor := draw % count
		if gcd(factor, count) == 1 {
			return order{count, factor, mix(draw) % count}
		}
	}
}

func (o order) at(position uint64) uint64 {
	high, low := bits.Mul64(o.factor, position%o.count)
	low, carry := bits.Add64(low, o.offset, 0)
	return bits.Rem64(high+carry, low, o.count)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// model is what must be in the store: for each key `generation << 1 | isThere`. A key is written by one thread of a phase.
type model []uint32

// expected is the generation that the key's value must have, and whether it must be there.
func (m model) expected(index uint64) (uint32, bool) {
	if index >= uint64(len(m)) {
		return 0, false
	}
	return m[index] >> 1, m[index]&1 == 1
}

func (m model) put(index uint64) uint32 {
	generation := m[index]>>1 + 1
	m[index] = generation<<1 | 1
	return generation
}

func (m model) delete(index uint64) { m[index] &^= 1 }

func (m model) live() uint64 {
	count := uint64(0)
	for _, state := range m {
		count += uint64(state & 1)
	}
	return count
}
