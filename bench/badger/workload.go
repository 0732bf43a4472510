package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"
)

// The workloads of ../src/workload, with the same keys in the same order and the same checks.

type work struct {
	store *store
	data  *data
	model model
	// order has, for ranges, the first eight bytes of the keys that are there, ascending.
	order    []uint64
	plan     *plan
	salt     uint64
	deadline time.Time
}

type done struct {
	operations, userBytes uint64
	latencies             latencies
}

func (d *done) add(other *done) {
	d.operations += other.operations
	d.userBytes += other.userBytes
	d.latencies.add(&other.latencies)
}

// part is one thread's share: positions begin..end of the order.
type part struct {
	number, begin, end, quota, salt uint64
	order                           order
}

func (p part) at(step uint64) uint64 { return p.order.at(p.begin + step%max(p.end-p.begin, 1)) }

// drawn is a key to read: some come often, some not at all.
func (p part) drawn(step uint64) uint64 { return p.at(draw(p.salt, step)) }

func (w *work) isOver(now time.Time) bool { return !w.deadline.IsZero() && now.After(w.deadline) }

func salt(seed uint64, number int) uint64 { return mix(seed ^ mix(uint64(number)+1)) }

func (w *work) crew(each func(*work, part, *done) error) (*done, error) {
	threads := max(w.plan.Threads, 1)
	share := func(count, number uint64) uint64 { return count * number / threads }
	if w.plan.SecondsMax > 0 {
		w.deadline = time.Now().Add(time.Duration(w.plan.SecondsMax) * time.Second)
	}
	results, errs := make([]done, threads), make([]error, threads)
	var workers sync.WaitGroup
	for number := range threads {
		workers.Go(func() {
			errs[number] = each(w, part{
				number: number,
				begin:  share(w.plan.Num, number),
				end:    share(w.plan.Num, number+1),
				quota:  share(w.plan.Reads, number+1) - share(w.plan.Reads, number),
				salt:   w.salt,
				order:  newOrder(w.plan.Num, w.salt),
			}, &results[number])
		})
	}
	workers.Wait()
	all := &done{}
	for number := range results {
		if errs[number] != nil {
			return nil, errs[number]
		}
		all.add(&results[number])
	}
	return all, nil
}

func putAll(w *work, p part, count uint64, mayStop bool, d *done) error {
	batch := make([]pair, 0, max(w.plan.Batch, 1))
	for step := uint64(0); step < count; {
		batch = batch[:0]
		for ; step < count && len(batch) < cap(batch); step++ {
			index := p.at(step)
			batch = append(batch, pair{w.data.key(index), w.data.value(index, w.model.put(index))})
		}
		begun := time.Now()
		if err := w.store.put(batch); err != nil {
			return err
		}
		ended := time.Now()
		d.latencies.record(ended.Sub(begun).Nanoseconds())
		d.operations += uint64(len(batch))
		d.userBytes += uint64(len(batch) * (keyBytes + w.data.valueBytes))
		if mayStop && w.isOver(ended) {
			break
		}
	}
	return nil
}

func load(w *work, p part, d *done) error   { return putAll(w, p, p.end-p.begin, false, d) }
func update(w *work, p part, d *done) error { return putAll(w, p, p.quota, true, d) }

const deleteOneIn = 10

func deleteSome(w *work, p part, d *done) error {
	for step := uint64(0); step < p.quota; step += deleteOneIn {
		index := p.at(step)
		key := w.data.key(index)
		w.model.delete(index)
		begun := time.Now()
		if err := w.store.delete(key[:]); err != nil {
			return err
		}
		ended := time.Now()
		d.latencies.record(ended.Sub(begun).Nanoseconds())
		d.operations++
		d.userBytes += keyBytes
		if w.isOver(ended) {
			break
		}
	}
	return nil
}

func (w *work) judge(index uint64, value []byte, isThere bool) error {
	generation, mustBe := w.model.expected(index)
	switch {
	case mustBe && !isThere:
		return fmt.Errorf("wrong answer: key %d is missing", index)
	case !mustBe && isThere:
		return fmt.Errorf("wrong answer: key %d is there and must not be", index)
	case mustBe && !w.data.matches(index, generation, value):
		return fmt.Errorf("wrong answer: key %d has another value than was put last", index)
	}
	return nil
}

func getAll(w *work, p part, offset uint64, d *done) error {
	for step := range p.quota {
		index := p.drawn(step) + offset
		key := w.data.key(index)
		var fault error
		found := 0
		begun := time.Now()
		err := w.store.get(key[:], func(value []byte, isThere bool) {
			found, fault = len(value), w.judge(index, value, isThere)
		})
		ended := time.Now()
		if err != nil {
			return err
		}
		if fault != nil {
			return fault
		}
		d.latencies.record(ended.Sub(begun).Nanoseconds())
		d.operations++
		d.userBytes += uint64(keyBytes + found)
		if w.isOver(ended) {
			break
		}
	}
	return nil
}

func readRandom(w *work, p part, d *done) error  { return getAll(w, p, 0, d) }
func readMissing(w *work, p part, d *done) error { return getAll(w, p, w.plan.Num, d) }

func exists(w *work, p part, d *done) error {
	for step := range p.quota {
		index := p.drawn(step) + step%2*w.plan.Num
		key := w.data.key(index)
		begun := time.Now()
		isThere, err := w.store.exists(key[:])
		ended := time.Now()
		if err != nil {
			return err
		}
		if _, mustBe := w.model.expected(index); isThere != mustBe {
			return fmt.Errorf("wrong answer: key %d: there is %v, must be %v", index, isThere, mustBe)
		}
		d.latencies.record(ended.Sub(begun).Nanoseconds())
		d.operations++
		d.userBytes += keyBytes
		if w.isOver(ended) {
			break
		}
	}
	return nil
}

// watch checks entries as they go by: ours, ascending, with the right value.
type watch struct {
	work               *work
	last               []byte
	entries, userBytes uint64
	fault              error
}

func (s *watch) see(key, value []byte, withValue bool) bool {
	index, isOurs := s.work.data.index(key)
	if !isOurs {
		s.fault = fmt.Errorf("wrong answer: a scan met the key %x, which was never put", key)
		return false
	}
	generation, mustBe := s.work.model.expected(index)
	switch {
	case !mustBe:
		s.fault = fmt.Errorf("wrong answer: in a scan, key %d is there and must not be", index)
	case s.last != nil && bytes.Compare(s.last, key) >= 0:
		s.fault = fmt.Errorf("wrong answer: in a scan, key %d comes out of order", index)
	case withValue && !s.work.data.matches(index, generation, value):
		s.fault = fmt.Errorf("wrong answer: in a scan, key %d has another value than was put last", index)
	}
	s.last = append(s.last[:0], key...)
	s.entries++
	s.userBytes += uint64(keyBytes + len(value))
	return s.fault == nil
}

func rank(key []byte) uint64 { return binary.BigEndian.Uint64(key) }

// checkRange: it met as many entries from that key on as there are up to its last.
func (w *work) checkRange(index uint64, from []byte, s *watch) error {
	place, _ := slices.BinarySearch(w.order, rank(from))
	there := w.order[place:]
	due := min(max(w.plan.RangeEntries, 1), uint64(len(there)))
	switch {
	case s.entries != due:
		return fmt.Errorf("wrong answer: a range from key %d met %d keys where %d are", index, s.entries, due)
	case due > 0 && rank(s.last) != there[due-1]:
		return fmt.Errorf("wrong answer: a range from key %d left out a key", index)
	}
	return nil
}

func ranges(w *work, p part, d *done) error {
	for step := range p.quota {
		index := p.drawn(step)
		from := w.data.key(index)
		s := watch{work: w}
		begun := time.Now()
		err := w.store.scan(from[:], true, int(w.plan.RangeEntries), func(key, value []byte) bool {
			return s.see(key, value, true) && s.entries < w.plan.RangeEntries
		})
		ended := time.Now()
		if err == nil {
			err = s.fault
		}
		if err == nil {
			err = w.checkRange(index, from[:], &s)
		}
		if err != nil {
			return err
		}
		d.latencies.record(ended.Sub(begun).Nanoseconds())
		d.operations += s.entries
		d.userBytes += s.userBytes
		if w.isOver(ended) {
			break
		}
	}
	return nil
}

const entriesPerSample = 100

func pass(w *work, p part, withValues bool, d *done) error {
	bound := func(number uint64) (key [keyBytes]byte) {
		// The prefix number * 2^64 / threads, as the Rust harness divides it.
		prefix := divide(number, max(w.plan.Threads, 1))
		for i := range 8 {
			key[i] = byte(prefix >> (56 - 8*i))
		}
		return key
	}
	from, end := bound(p.number), bound(p.number+1)
	isLast := p.number+1 >= max(w.plan.Threads, 1)
	s := watch{work: w}
	begun := time.Now()
	err := w.store.scan(from[:], withValues, entriesPerSample, func(key, value []byte) bool {
		if !isLast && bytes.Compare(key, end[:]) >= 0 || !s.see(key, value, withValues) {
			return false
		}
		if s.entries%entriesPerSample == 0 {
			now := time.Now()
			d.latencies.record(now.Sub(begun).Nanoseconds())
			begun = now
		}
		return true
	})
	if err == nil {
		err = s.fault
	}
	d.operations, d.userBytes = s.entries, s.userBytes
	return err
}

func (w *work) counted(withValues bool) (*done, error) {
	all, err := w.crew(func(w *work, p part, d *done) error { return pass(w, p, withValues, d) })
	if err == nil && all.operations != w.model.live() {
		err = fmt.Errorf("wrong answer: a scan met %d keys where %d are", all.operations, w.model.live())
	}
	return all, err
}

func (w *work) run(workload string) (*done, error) {
	switch workload {
	case "load":
		return w.crew(load)
	case "update":
		return w.crew(update)
	case "delete":
		return w.crew(deleteSome)
	case "readrandom":
		return w.crew(readRandom)
	case "readmissing":
		return w.crew(readMissing)
	case "exists":
		return w.crew(exists)
	case "range":
		return w.crew(ranges)
	case "scan":
		return w.counted(true)
	case "scankeys":
		return w.counted(false)
	}
	return nil, fmt.Errorf("there is no workload %q", workload)
}
