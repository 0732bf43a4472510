package main

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// What the harness asks of Badger; see the trait Engine in ../src/engine/mod.rs.
type store struct{ db *badger.DB }

type pair struct {
	key   [keyBytes]byte
	value []byte
}

func openStore(p *plan) (*store, error) {
	s := p.Settings
	o := badger.DefaultOptions(p.Directory).
		WithLoggingLevel(badger.ERROR).
		WithMemTableSize(int64(s.writeBufferBytes())).
		WithNumMemtables(writeBuffers).
		WithBlockCacheSize(int64(s.cacheBytes())).
		WithValueThreshold(valueThreshold(s)).
		WithNumCompactors(max(s.BackgroundJobs, 2)).
		WithCompression(options.Snappy).
		WithSyncWrites(s.Sync).
		WithDetectConflicts(false).
		WithMetricsEnabled(false)
	db, err := badger.Open(o)
	return &store{db}, err
}

// valueThreshold is the budget's, or the most that Badger takes: 15% of a memtable, 1 MiB at most.
func valueThreshold(s settings) int64 {
	return min(int64(s.MinBlobBytes), int64(s.writeBufferBytes())*15/100, 1<<20)
}

func setup(s settings) string {
	return fmt.Sprintf("block cache %d MiB, %d memtables of %d MiB, %d compactors (2 is its least), Snappy (it has no LZ4; its "+
		"value log is never compressed), filters of 1%% (about 10 bits), values from %d B in the value log, conflict "+
		"detection off, value log GC at settling until it finds nothing (ratio 0.5), as its documentation asks of the user",
		s.cacheBytes()>>20, writeBuffers, s.writeBufferBytes()>>20, max(s.BackgroundJobs, 2), valueThreshold(s))
}

func version() string {
	if info, isKnown := debug.ReadBuildInfo(); isKnown {
		for _, module := range info.Deps {
			if module.Path == "github.com/dgraph-io/badger/v4" {
				return module.Version
			}
		}
	}
	return "?"
}

func (s *store) put(batch []pair) error {
	return s.db.Update(func(txn *badger.Txn) error {
		for i := range batch {
			if err := txn.Set(batch[i].key[:], batch[i].value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *store) delete(key []byte) error {
	return s.db.Update(func(txn *badger.Txn) error { return txn.Delete(key) })
}

func (s *store) get(key []byte, show func(value []byte, isThere bool)) error {
	return s.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			show(nil, false)
			return nil
		}
		if err != nil {
			return err
		}
		return item.Value(func(value []byte) error {
			show(value, true)
			return nil
		})
	})
}

// exists does not read the value: an item finds it only when it is asked for.
func (s *store) exists(key []byte) (isThere bool, err error) {
	err = s.db.View(func(txn *badger.Txn) error {
		_, err := txn.Get(key)
		isThere = err == nil
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil
		}
		return err
	})
	return isThere, err
}

func (s *store) scan(from []byte, withValues bool, prefetch int, show func(key, value []byte) bool) error {
	return s.db.View(func(txn *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchValues = withValues
		o.PrefetchSize = prefetch
		entries := txn.NewIterator(o)
		defer entries.Close()
		for entries.Seek(from); entries.Valid(); entries.Next() {
			item := entries.Item()
			goOn := false
			if !withValues {
				goOn = show(item.Key(), nil)
			} else if err := item.Value(func(value []byte) error {
				goOn = show(item.Key(), value)
				return nil
			}); err != nil {
				return err
			}
			if !goOn {
				return nil
			}
		}
		return nil
	})
}

// settle empties level 0 and collects garbage. Badger cannot be asked to flush its memtable: the caller closes and reopens.
func (s *store) settle(jobs int) error {
	if err := s.db.Flatten(max(jobs, 1)); err != nil {
		return err
	}
	for {
		err := s.db.RunValueLogGC(0.5)
		if errors.Is(err, badger.ErrNoRewrite) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
