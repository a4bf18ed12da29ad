#include "tools/corridor/recorded_trace.h"

#include <utility>

#include "golden/trace_recording.h"
#include "tools/corridor/cache_implementations.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/recorded_cache.h"

namespace kvcheck {

Verdict JudgeRecordedTrace(const StoredFile& file, const StoredAnswer& answer, const CacheCase& c) {
  TensorMap outputs;
  for (const auto& [name, dataset] : answer.outputs) {
    outputs[name] = ReadTensor(file.source(), dataset);
  }
  const TraceRecording recording(c, std::move(outputs), file.path());
  CacheCapabilities capabilities;
  capabilities.name = ImplementationText(answer);
  capabilities.version = answer.version;
  ParseRecordedProfile(answer.profile, &capabilities);
  capabilities.plan = ParsePlan(answer.plan.empty() ? kStrangerPlan : answer.plan);
  RecordedCacheFactory factory(c, recording, std::move(capabilities));
  Verdict verdict = EvaluateCacheCase(c, &factory);
  verdict.profile = answer.profile;
  return verdict;
}

}  // namespace kvcheck
