// Badger under the same plans as the engines of the Rust harness: a plan comes in as a line of JSON, results go out as
// lines of JSON. See ../src/run.rs, which this follows step by step.
package main

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"time"
)

const (
	quietPeriod     = 200 * time.Millisecond
	quietCPUSeconds = 0.021
	quietWaitMax    = 120 * time.Second
)

func divide(number, threads uint64) uint64 {
	if number >= threads {
		return ^uint64(0)
	}
	quotient, _ := bits.Div64(number, 0, threads)
	return quotient
}

func writes(workload string) bool {
	return workload == "load" || workload == "update" || workload == "delete"
}

type runner struct {
	plan  *plan
	data  *data
	model model
	store *store
}

func (r *runner) open() (err error) {
	r.store, err = openStore(r.plan)
	return err
}

func (r *runner) reopen(between func(string) error) error {
	if err := r.store.db.Close(); err != nil {
		return err
	}
	if err := between(r.plan.Directory); err != nil {
		return err
	}
	return r.open()
}

func (r *runner) settle() error {
	// Closing is the only way to have the memtable flushed.
	if err := r.reopen(func(string) error { return nil }); err != nil {
		return err
	}
	if err := r.store.settle(r.plan.Settings.BackgroundJobs); err != nil {
		return err
	}
	before := cpuSeconds()
	for begun := time.Now(); time.Since(begun) < quietWaitMax; {
		time.Sleep(quietPeriod)
		now := cpuSeconds()
		if now-before <= quietCPUSeconds {
			break
		}
		before = now
	}
	return syncFiles(r.plan.Directory)
}

// order is that of the keys that are there, for ranges: made ahead of the clock.
func (r *runner) order(workload string) []uint64 {
	if workload != "range" {
		return nil
	}
	order := make([]uint64, 0, r.model.live())
	for index := range r.plan.Num {
		if _, isThere := r.model.expected(index); isThere {
			key := r.data.key(index)
			order = append(order, rank(key[:]))
		}
	}
	slices.Sort(order)
	return order
}

func (r *runner) work(workload string, number int, order []uint64) (*done, error) {
	w := &work{store: r.store, data: r.data, model: r.model, order: order, plan: r.plan, salt: salt(r.plan.Seed, number)}
	d, err := w.run(workload)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", workload, err)
	}
	return d, nil
}

func (r *runner) phase(workload string, number int) (*phase, error) {
	if r.plan.Cold && !writes(workload) {
		if err := r.reopen(dropPages); err != nil {
			return nil, err
		}
	}
	order := r.order(workload)
	before, err := costNow()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	d, err := r.work(workload, number, order)
	if err != nil {
		return nil, err
	}
	result := &phase{Workload: workload, Operations: d.operations, UserBytes: d.userBytes,
		Seconds: time.Since(begun).Seconds(), Latency: d.latencies.summary()}
	if writes(workload) {
		settling := time.Now()
		if err := r.settle(); err != nil {
			return nil, err
		}
		result.SettleSeconds = time.Since(settling).Seconds()
	}
	after, err := costNow()
	result.Cost = after.since(before)
	return result, err
}

func run(p *plan, say func(line) error) error {
	r := &runner{plan: p, data: newData(p.Seed, p.ValueBytes), model: make(model, p.Num)}
	start, err := costNow()
	if err != nil {
		return err
	}
	memory := watchMemory()
	if err := r.open(); err != nil {
		return err
	}
	end := &whole{Version: version(), Setup: setup(p.Settings)}
	for number, workload := range p.Workloads {
		result, err := r.phase(workload, number)
		if err != nil {
			return err
		}
		if writes(workload) {
			end.UserWritten += result.UserBytes
		} else {
			end.UserRead += result.UserBytes
		}
		if err := say(line{Phase: result}); err != nil {
			return err
		}
	}
	now, err := costNow()
	if err != nil {
		return err
	}
	end.Cost = now.since(start)
	end.RSSPeak, end.AnonymousPeak = memory.peaks()
	if end.Disk, err = diskBytes(p.Directory); err != nil {
		return err
	}
	if err := r.reopen(func(string) error { return nil }); err != nil {
		return err
	}
	if _, err := r.work("scan", len(p.Workloads), nil); err != nil {
		return err
	}
	if err := r.store.db.Close(); err != nil {
		return err
	}
	end.Live = r.model.live() * uint64(keyBytes+p.ValueBytes)
	return say(line{Whole: end})
}

func main() {
	out := json.NewEncoder(os.Stdout)
	say := func(l line) error { return out.Encode(l) }
	var p plan
	err := json.NewDecoder(os.Stdin).Decode(&p)
	if err == nil {
		err = run(&p, say)
	}
	if err != nil && say(line{Failed: err.Error()}) != nil {
		os.Exit(1)
	}
}
