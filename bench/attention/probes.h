// What this machine can do at all, in the moment of a measurement: how fast it reads memory, and
// its FMA peak. With its widest vectors.

#ifndef BENCH_ATTENTION_PROBES_H_
#define BENCH_ATTENTION_PROBES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "optimized/attention/worker_pool.h"
#include "optimized/cache/stored_memory.h"

namespace kvcheck {

// The or of all bytes of a buffer. Threads read a part each, and then what is left of the other
// parts.
class ReadProbe {
 public:
  explicit ReadProbe(int threads) : pool_(threads) {}
  // Of the faster of two ways to read: one stream per thread, or four. Reads the same bytes each
  // time, what fits a cache from there; or others each time, until `cold` have been read.
  double Seconds(int64_t bytes, int64_t cold = 0);

 private:
  double SecondsOf(int streams);
  void Read(int worker);

  optimized::WorkerPool pool_;
  optimized::StoredMemory memory_;  // as K and V have it
  const std::byte* from_ = nullptr;
  int64_t pieces_ = 0;
  bool goes_on_ = false;  // to other bytes each time
  int64_t next_ = 0;      // from there, whatever was read before
  int streams_ = 1;
  std::atomic<int64_t> taken_[64] = {};  // pieces of each worker's part
  std::atomic<uint64_t> sink_{0};
};

// The FMA peak of f32: independent chains of fused multiply-adds.
class FmaProbe {
 public:
  explicit FmaProbe(int threads) : pool_(threads) {}
  double Seconds();
  double Flops() const;  // of one call, a multiply-add counted two

 private:
  void Work();

  optimized::WorkerPool pool_;
  std::atomic<int64_t> taken_{0};
  std::atomic<float> sink_{0};
};

}  // namespace kvcheck

#endif  // BENCH_ATTENTION_PROBES_H_
