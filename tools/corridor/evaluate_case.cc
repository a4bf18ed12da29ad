#include "tools/corridor/evaluate_case.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "reference/attention/attention_source.h"
#include "reference/attention/statistics.h"
#include "reference/formats/codec_source.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/tensor_source.h"
#include "reference/spec/error.h"
#include "reference/spec/known_plans.h"
#include "tools/process/remote_implementation.h"

namespace kvcheck {
namespace {

// Stops an implementation at its next rows once that was requested.
class CancellableSink : public MemorySink {
 public:
  explicit CancellableSink(const Cancel& cancel) : cancel_(cancel) {}
  void Write(const std::string& name, int64_t first_element,
             std::span<const std::byte> bytes) override {
    cancel_.ThrowIfRequested();
    MemorySink::Write(name, first_element, bytes);
  }

 private:
  const Cancel& cancel_;
};

}  // namespace

std::vector<ExpectedTile> CancellableSource::Tiles(int64_t index,
                                                   const TileRequest& request) const {
  cancel_.ThrowIfRequested();
  return source_.Tiles(index, request);
}

std::unique_ptr<ExpectedSource> MakeExpected(const Question& question) {
  Validate(question.c);
  if (const auto* attention = std::get_if<AttentionCase>(&question.c)) {
    return std::make_unique<AttentionSource>(*attention, question.profile, question.plan,
                                             question.inputs);
  }
  if (const auto* codec = std::get_if<CodecCase>(&question.c)) {
    return MakeCodecSource(*codec, question.profile, question.inputs);
  }
  if (std::holds_alternative<CacheCase>(question.c)) {
    throw Error(ErrorCode::kUnsupported,
                "a cache case is a trace of operations and has no tensors to compare; kvcheck run "
                "judges it on an implementation");
  }
  CheckInputs(question.c, question.inputs);
  std::map<std::string, RuledTensor> tensors;
  tensors["got"] = {Get(question.inputs, "expected"), std::get<TensorCase>(question.c).rule};
  return std::make_unique<RuledTensorSource>(std::move(tensors));
}

Verdict EvaluateCase(const Question& question, const ObservedSource& observed, JudgeOptions options,
                     const Cancel& cancel) {
  const std::unique_ptr<ExpectedSource> expected = MakeExpected(question);
  if (std::holds_alternative<TensorCase>(question.c)) options.special = kTensorPolicy;
  Verdict verdict = Judge(CancellableSource(*expected, cancel), observed, options);
  verdict.case_text = Print(question.c);
  if (std::holds_alternative<AttentionCase>(question.c)) verdict.plan = Print(question.plan);
  verdict.profile = Print(question.profile);
  return verdict;
}

std::string CommandPlan(const Plan& plan) {
  if (!plan.name.empty() && FindKnownPlan(plan.name) != nullptr) {
    const std::string base = "base=" + plan.name;
    if (ParsePlan(base) == plan) return base;
  }
  return Print(plan);
}

int64_t CountStatistics(const Case& c) {
  const auto* attention = std::get_if<AttentionCase>(&c);
  if (attention == nullptr) return 0;
  return attention->batch * attention->query_heads *
         (static_cast<int64_t>(FaultDirections().size()) + 1);
}

void CheckFitsMemory(double bytes, const std::string& what) {
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  if (bytes <= memory) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{:.3g} GB of tensors do not fit the {:.3g} GB of this machine; make the "
                          "case smaller",
                          bytes / 1e9, memory / 1e9),
              what);
}

TensorMap GenerateCaseInputs(const Case& c, const Profile& profile) {
  double bytes = 0;
  for (const auto& [name, spec] : InputSpecs(c)) {
    bytes += static_cast<double>(spec.shape.ElementCount()) *
             static_cast<double>(SizeInBytes(spec.dtype));
  }
  CheckFitsMemory(bytes, Print(c));
  return GenerateInputs(c, profile);
}

// What messages with one cause have in common, for a signature.
std::string WithoutNumbers(std::string_view message) {
  constexpr size_t kMostLength = 60;
  std::string text;
  for (const char c : message) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) text += c;
    if (digit && !text.ends_with('#')) text += '#';
    if (text.size() == kMostLength) break;
  }
  return text;
}

namespace {

// The first convention of `asked` (a profile's text) that is another one in `stated`; "": none.
std::string OtherConvention(const std::string& asked, const Profile& stated) {
  for (size_t begin = 0; begin < asked.size();) {
    const size_t end = std::min(asked.find(' ', begin), asked.size());
    const std::string field = asked.substr(begin, end - begin);
    begin = end + 1;
    const std::string key = field.substr(0, field.find('=') + 1);
    if (field == "masked_row=any" || key.empty()) continue;
    // As stated, but for this field.
    std::string text;
    const std::string all = Print(stated);
    for (size_t at = 0; at < all.size();) {
      const size_t stop = std::min(all.find(' ', at), all.size());
      const std::string word = all.substr(at, stop - at);
      if (!word.starts_with(key)) text += word + " ";
      at = stop + 1;
    }
    if (!(ParseProfile(text + field) == stated)) return field;
  }
  return "";
}

}  // namespace

std::optional<MemorySink> Answer(Implementation& implementation, const Question& question,
                                 const Cancel& cancel) {
  CheckInputs(question.c, question.inputs);
  CancellableSink sink(cancel);
  if (implementation.Run(question.c, question.inputs, sink) == RunOutcome::kUnsupported) {
    return std::nullopt;
  }
  return MemorySink(std::move(sink.tensors()));
}

Verdict AskAndJudge(Implementation& implementation, const std::string& name, Question question,
                    const StatedBySelf& stated, const JudgeOptions& options, std::string* loss,
                    const Cancel& cancel) {
  std::optional<MemorySink> answer;
  try {
    answer = Answer(implementation, question, cancel);
  } catch (const RemoteLoss& lost) {
    const std::string signature = fmt::format("{} {}", KindName(question.c),
                                              lost.Signature().substr(lost.request().size() + 1));
    if (loss != nullptr) *loss = signature;
    return WithoutJudging(lost.outcome(), lost.reason());
  }
  if (!answer) {
    const auto* remote = dynamic_cast<const RemoteImplementation*>(&implementation);
    if (remote != nullptr && !remote->refused().empty()) {
      if (loss != nullptr) {
        *loss =
            fmt::format("{} refused: {}", KindName(question.c), WithoutNumbers(remote->refused()));
      }
      return WithoutJudging(Outcome::kFail, "a legal case was refused: " + remote->refused());
    }
    const std::string why =
        remote == nullptr || remote->declined().empty() ? "" : ": " + remote->declined();
    return WithoutJudging(Outcome::kUnsupported,
                          fmt::format("implementation '{}' declines this case{}", name, why));
  }
  const Plan* plan = implementation.AnswerPlan();
  const Profile* profile = implementation.AnswerProfile();
  const bool takes_plan = stated.plan && plan != nullptr;
  const bool takes_profile = stated.profile && profile != nullptr;
  if (profile != nullptr) {
    const std::string other = OtherConvention(stated.conventions, *profile);
    if (!other.empty()) {
      return WithoutJudging(
          Outcome::kUnsupported,
          fmt::format("the case asks for '{}', '{}' states of its answer that it follows '{}'",
                      other, name, Print(*profile)));
    }
  }
  if (takes_plan) question.plan = *plan;
  if (takes_profile) question.profile = *profile;
  try {
    Verdict verdict = EvaluateCase(question, *answer, options, cancel);
    if (!takes_profile && profile != nullptr && !(*profile == question.profile)) {
      verdict.warnings.push_back(
          fmt::format("the answer says that it has the profile '{}'; it was judged by the one that "
                      "the question "
                      "names",
                      Print(*profile)));
    }
    return verdict;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIllegalCase || (!takes_plan && !takes_profile)) throw;
    return WithoutJudging(Outcome::kFail,
                          "what the answer states of itself cannot be: " + error.message());
  }
}

}  // namespace kvcheck
