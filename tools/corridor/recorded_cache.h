// A recorded trace (golden/trace_recording.h) as an implementation of caches: it answers the calls
// of a TraceRunner with what a real library answered, and shows what that showed, so that golden
// traces are judged like any implementation.

#ifndef TOOLS_CORRIDOR_RECORDED_CACHE_H_
#define TOOLS_CORRIDOR_RECORDED_CACHE_H_

#include <memory>
#include <string_view>

#include "golden/trace_recording.h"
#include "reference/spec/cache_implementation.h"

namespace kvcheck {

// Where in the recording the run is; shared by the caches of a factory.
class RecordedPlayer {
 public:
  RecordedPlayer(const CacheCase& c, const TraceRecording& recording)
      : case_(c), recording_(recording) {}

  void Restart() { at_ = -1; }
  // Goes on to the next operation that calls an implementation, and gives its answer. Errors:
  // kMissingData where the recording has none.
  OpResult Next(CacheOpKind kind);
  int64_t at() const { return at_; }
  const CacheOp& op() const { return case_.ops[static_cast<size_t>(at_)]; }
  const RecordedAnswer& answer() const { return recording_.answers()[static_cast<size_t>(at_)]; }
  const RecordedState* State(int slot) const { return recording_.State(at_, slot); }
  const CacheSetup& setup() const { return case_.setup; }

 private:
  const CacheCase& case_;
  const TraceRecording& recording_;
  int64_t at_ = -1;  // the last operation answered
};

class RecordedCacheFactory : public CacheFactory {
 public:
  // c, recording: outlive the factory, and are judged from the first operation on at each Start.
  RecordedCacheFactory(const CacheCase& c, const TraceRecording& recording,
                       CacheCapabilities capabilities);

  CacheCapabilities GetCapabilities() const override { return capabilities_; }
  OpResult Start(const CacheSetup& setup) override;
  OpResult New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
               std::span<const int64_t> left_padding, std::unique_ptr<Cache>* out) override;
  OpResult Merge(std::span<const Cache* const> caches, std::unique_ptr<Cache>* out) override;
  OpResult Load(const StateStore& store, std::string_view key,
                std::unique_ptr<Cache>* out) override;

 private:
  CacheCapabilities capabilities_;
  std::shared_ptr<RecordedPlayer> player_;
};

// The profile of a recorded trace: fields of a Profile and of a CacheProfile, in any order.
// Errors: kParse.
void ParseRecordedProfile(std::string_view text, CacheCapabilities* capabilities);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_RECORDED_CACHE_H_
