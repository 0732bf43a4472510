package main

// The lines that ../src/plan.rs defines.

type settings struct {
	MemoryBytes    uint64 `json:"memory_bytes"`
	MinBlobBytes   uint64 `json:"min_blob_bytes"`
	BackgroundJobs int    `json:"background_jobs"`
	Sync           bool   `json:"sync"`
}

const writeBuffers = 4

func (s settings) writeBufferBytes() uint64 { return s.MemoryBytes / 4 / writeBuffers }
func (s settings) cacheBytes() uint64       { return s.MemoryBytes - s.writeBufferBytes()*writeBuffers }

type plan struct {
	Engine       string   `json:"engine"`
	Directory    string   `json:"directory"`
	Settings     settings `json:"settings"`
	Num          uint64   `json:"num"`
	Reads        uint64   `json:"reads"`
	ValueBytes   int      `json:"value_bytes"`
	Batch        int      `json:"batch"`
	RangeEntries uint64   `json:"range_entries"`
	Threads      uint64   `json:"threads"`
	SecondsMax   uint64   `json:"seconds_max"`
	Seed         uint64   `json:"seed"`
	Workloads    []string `json:"workloads"`
	Cold         bool     `json:"cold"`
}

type latencySummary struct {
	P50  int64 `json:"p50"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

type cost struct {
	CPU       float64 `json:"cpu_seconds"`
	Gross     uint64  `json:"written_gross_bytes"`
	Cancelled uint64  `json:"cancelled_bytes"`
	Read      uint64  `json:"read_bytes"`
}

type phase struct {
	Workload      string         `json:"workload"`
	Operations    uint64         `json:"operations"`
	UserBytes     uint64         `json:"user_bytes"`
	Seconds       float64        `json:"seconds"`
	SettleSeconds float64        `json:"settle_seconds"`
	Latency       latencySummary `json:"latency"`
	Cost          cost           `json:"cost"`
}

type whole struct {
	UserWritten   uint64 `json:"user_written_bytes"`
	UserRead      uint64 `json:"user_read_bytes"`
	Live          uint64 `json:"live_bytes"`
	Disk          uint64 `json:"disk_bytes"`
	RSSPeak       uint64 `json:"rss_peak_bytes"`
	AnonymousPeak uint64 `json:"anonymous_peak_bytes"`
	Cost          cost   `json:"cost"`
	Version       string `json:"version"`
	Setup         string `json:"setup"`
}

// line is one of the three.
type line struct {
	Phase  *phase `json:"phase,omitempty"`
	Whole  *whole `json:"whole,omitempty"`
	Failed string `json:"failed,omitempty"`
}
