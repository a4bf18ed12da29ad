#include "bench/attention/probes.h"

#include <algorithm>
#include <numeric>

#include "bench/timing.h"

// Vectors of unknown length cannot be array elements; NEON takes the place of SVE.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/attention/probes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The or of a whole number of 512 bytes, read as kStreams streams, two lines of each in turn.
template <int kStreams>
uint64_t OrOfStreams(const uint8_t* from, int64_t bytes) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kAhead = 1024;
  const hn::ScalableTag<uint8_t> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<uint8_t>()));
  constexpr int kVectors = 128 / kLanes;  // two lines
  const int64_t part = bytes / kStreams;
  hn::Vec<decltype(d)> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (int64_t i = 0; i + 2 * kLine <= part; i += 2 * kLine) {
    for (int s = 0; s < kStreams; ++s) {
      const uint8_t* at = from + s * part + i;
      __builtin_prefetch(at + kAhead);
      __builtin_prefetch(at + kAhead + kLine);
      for (int k = 0; k < kVectors; ++k)
        sums[k] = hn::Or(sums[k], hn::LoadU(d, at + int64_t{k} * kLanes));
    }
  }
  for (int k = 1; k < kVectors; ++k) sums[0] = hn::Or(sums[0], sums[k]);
  HWY_ALIGN uint8_t lanes[kLanes];
  hn::Store(sums[0], d, lanes);
  return *std::max_element(lanes, lanes + kLanes);
}

uint64_t OrOf(const std::byte* from, int64_t bytes, int streams) {
  const auto* at = reinterpret_cast<const uint8_t*>(from);
  return streams == 1 ? OrOfStreams<1>(at, bytes) : OrOfStreams<4>(at, bytes);
}

constexpr int kChains = 12;

// `steps` FMAs on each lane of kChains vectors.
float MultiplyAdd(int64_t steps) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.9999f);
  const auto term = hn::Set(d, 1e-4f);
  hn::Vec<decltype(d)> x[kChains];
  for (int k = 0; k < kChains; ++k) x[k] = hn::Iota(d, static_cast<float>(k));
  for (int64_t i = 0; i < steps; ++i) {
    for (int k = 0; k < kChains; ++k) x[k] = hn::MulAdd(x[k], factor, term);
  }
  for (int k = 1; k < kChains; ++k) x[0] = hn::Add(x[0], x[k]);
  constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
  HWY_ALIGN float lanes[kLanes];
  hn::Store(x[0], d, lanes);
  return std::accumulate(lanes, lanes + kLanes, 0.0f);
}

double FlopsOfStep() {
  return 2.0 * kChains * static_cast<double>(hn::Lanes(hn::ScalableTag<float>()));
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck {
namespace {

HWY_EXPORT(OrOf);
HWY_EXPORT(MultiplyAdd);
HWY_EXPORT(FlopsOfStep);

constexpr int64_t kPiece = 64 << 10;
constexpr int64_t kSteps = 10000;
constexpr int64_t kTurns = 64;

}  // namespace

double ReadProbe::Seconds(int64_t bytes, int64_t cold) {
  pieces_ = std::max<int64_t>(1, bytes / kPiece);
  goes_on_ = cold > 0;
  const int64_t space = pieces_ * kPiece + cold;
  if (memory_.bytes() < space) {
    memory_ = {};
    memory_ = optimized::StoredMemory(space);
    std::fill_n(memory_.data(), space, std::byte{1});
    next_ = 0;  // what was written first is longest out of the caches
  }
  const double seconds = std::min(SecondsOf(1), SecondsOf(4));
  // For what a whole number of pieces leaves out or adds.
  return seconds * static_cast<double>(bytes) / static_cast<double>(pieces_ * kPiece);
}

double ReadProbe::SecondsOf(int streams) {
  streams_ = streams;
  if (!goes_on_ || next_ + pieces_ * kPiece > memory_.bytes()) next_ = 0;
  from_ = memory_.data() + next_;
  if (goes_on_) next_ += pieces_ * kPiece;
  for (std::atomic<int64_t>& taken : taken_) taken.store(0, std::memory_order_relaxed);
  const double start = Now();
  pool_.Run([](void* probe, int worker) { static_cast<ReadProbe*>(probe)->Read(worker); }, this);
  return Now() - start;
}

void ReadProbe::Read(int worker) {
  const int workers = pool_.workers();
  uint64_t all = 0;
  for (int i = 0; i < workers; ++i) {
    const int part = (worker + i) % workers;
    const int64_t first = pieces_ * part / workers;
    const int64_t count = pieces_ * (part + 1) / workers - first;
    while (true) {
      const int64_t piece = taken_[part].fetch_add(1, std::memory_order_relaxed);
      if (piece >= count) break;
      all |= HWY_DYNAMIC_DISPATCH(OrOf)(from_ + (first + piece) * kPiece, kPiece, streams_);
    }
  }
  sink_.store(all, std::memory_order_relaxed);
}

double FmaProbe::Seconds() {
  taken_.store(0, std::memory_order_relaxed);
  const double start = Now();
  pool_.Run([](void* probe, int) { static_cast<FmaProbe*>(probe)->Work(); }, this);
  return Now() - start;
}

double FmaProbe::Flops() const {
  return static_cast<double>(kSteps * kTurns) * HWY_DYNAMIC_DISPATCH(FlopsOfStep)();
}

void FmaProbe::Work() {
  float sum = 0;
  while (taken_.fetch_add(1, std::memory_order_relaxed) < kTurns) {
    sum += HWY_DYNAMIC_DISPATCH(MultiplyAdd)(kSteps);
  }
  sink_.store(sum, std::memory_order_relaxed);
}

}  // namespace kvcheck
#endif  // HWY_ONCE
