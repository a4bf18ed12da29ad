#include "tools/corridor/recorded_trace.h"

#include <utility>

#include "golden/trace_recording.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/judge_trace.h"
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

namespace {

struct StoredQuestion {
  const StoredFile& gold;
  const GoldenCase& outline;
  const StoredFile& got;
  const StoredAnswer& answer;
  const JudgeOptions& options;
  const Cancel& cancel;
};

Verdict JudgeStored(const CacheCase& c, const StoredQuestion& asked) {
  return JudgeRecordedTrace(asked.got, asked.answer, c);
}

template <typename C>
Verdict JudgeStored(const C& c, const StoredQuestion& asked) {
  Question question;
  question.c = c;
  if (!asked.answer.plan.empty()) question.plan = ParsePlan(asked.answer.plan);
  question.profile = ParseProfile(asked.answer.profile);
  question.inputs = GoldenInputs(asked.gold, asked.outline, question.c, question.profile);
  const FileObserved observed(asked.got, asked.answer.outputs, question.c);
  return EvaluateCase(question, observed, asked.options, asked.cancel);
}

}  // namespace

Verdict JudgeStoredAnswer(const StoredFile& gold, const GoldenCase& outline, const Case& c,
                          const StoredFile& got, const StoredAnswer& answer,
                          const JudgeOptions& options, const Cancel& cancel) {
  const StoredQuestion asked = {gold, outline, got, answer, options, cancel};
  return std::visit([&](const auto& kind) { return JudgeStored(kind, asked); }, c);
}

}  // namespace kvcheck
