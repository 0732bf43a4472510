package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// latencies counts in buckets of at most a 1,024th of their value: three digits, as the Rust harness.
type latencies struct {
	counts [40 << subBits]uint32
	total  uint64
	max    int64
}

const subBits = 10

func bucket(ns int64) int {
	shift := max(bits.Len64(uint64(ns))-subBits-1, 0)
	return shift<<subBits + int(ns>>shift)
}

// top is the longest latency that falls into the bucket.
func top(at int) int64 {
	shift := max(at>>subBits-1, 0)
	return (int64(at-shift<<subBits)+1)<<shift - 1
}

func (l *latencies) record(ns int64) {
	ns = max(ns, 1)
	l.counts[min(bucket(ns), len(l.counts)-1)]++
	l.total++
	l.max = max(l.max, ns)
}

func (l *latencies) add(other *latencies) {
	for at, count := range other.counts {
		l.counts[at] += count
	}
	l.total += other.total
	l.max = max(l.max, other.max)
}

func (l *latencies) at(quantile float64) int64 {
	wanted, seen := quantile*float64(l.total), uint64(0)
	for at, count := range l.counts {
		seen += uint64(count)
		if count > 0 && float64(seen) >= wanted {
			return min(top(at), l.max)
		}
	}
	return l.max
}

func (l *latencies) summary() latencySummary {
	return latencySummary{l.at(0.5), l.at(0.99), l.at(0.999), l.max}
}

// fields are the numbers of a file under /proc whose lines are `name: number …`.
func fields(path string) map[string]uint64 {
	found := map[string]uint64{}
	file, err := os.Open(path)
	if err != nil {
		return found
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if words := strings.Fields(rest); len(words) > 0 {
			if number, err := strconv.ParseUint(words[0], 10, 64); err == nil {
				found[name] = number
			}
		}
	}
	return found
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

func costNow() (cost, error) {
	io := fields("/proc/self/io")
	if _, isThere := io["write_bytes"]; !isThere {
		return cost{}, fmt.Errorf("/proc/self/io lacks a field")
	}
	return cost{cpuSeconds(), io["write_bytes"], io["cancelled_write_bytes"], io["read_bytes"]}, nil
}

func (c cost) since(earlier cost) cost {
	cancelled := c.Cancelled - min(c.Cancelled, earlier.Cancelled)
	return cost{c.CPU - earlier.CPU, c.Gross - earlier.Gross, cancelled, c.Read - earlier.Read}
}

// peakMemory samples anonymous memory every 50 ms until it is asked.
type peakMemory struct {
	anonymous atomic.Uint64
	end       chan chan struct{}
}

func watchMemory() *peakMemory {
	p := &peakMemory{end: make(chan chan struct{})}
	go func() {
		for {
			p.anonymous.Store(max(p.anonymous.Load(), fields("/proc/self/status")["RssAnon"]*1024))
			select {
			case ended := <-p.end:
				close(ended)
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return p
}

func (p *peakMemory) peaks() (resident, anonymous uint64) {
	ended := make(chan struct{})
	p.end <- ended
	<-ended
	status := fields("/proc/self/status")
	return status["VmHWM"] * 1024, max(p.anonymous.Load(), status["RssAnon"]*1024)
}

func eachFile(dir string, visit func(*os.File) error) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		return visit(file)
	})
}

func syncFiles(dir string) error {
	return eachFile(dir, func(file *os.File) error { return unix.Fdatasync(int(file.Fd())) })
}

func dropPages(dir string) error {
	return eachFile(dir, func(file *os.File) error {
		if err := unix.Fdatasync(int(file.Fd())); err != nil {
			return err
		}
		return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

func diskBytes(dir string) (bytes uint64, err error) {
	err = eachFile(dir, func(file *os.File) error {
		var stat unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
			return err
		}
		bytes += uint64(stat.Blocks) * 512
		return nil
	})
	return bytes, err
}
