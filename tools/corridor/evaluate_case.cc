#include "tools/corridor/evaluate_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "reference/attention/attention_source.h"
#include "reference/attention/statistics.h"
#include "reference/formats/codec_source.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/tensor_source.h"
#include "reference/spec/case_kind.h"
#include "reference/spec/error.h"
#include "reference/spec/known_plans.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/corridor/plan_fit.h"
#include "tools/report/number_text.h"

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

namespace {

std::unique_ptr<ExpectedSource> ExpectedOf(const AttentionCase& c, const Question& question) {
  auto source =
      std::make_unique<AttentionSource>(c, question.profile, question.plan, question.inputs);
  if (question.device_sums) source->UseDevice(question.device_sums);
  return source;
}

std::unique_ptr<ExpectedSource> ExpectedOf(const CodecCase& c, const Question& question) {
  return MakeCodecSource(c, question.profile, question.inputs);
}

std::unique_ptr<ExpectedSource> ExpectedOf(const TensorCase& c, const Question& question) {
  CheckInputs(question.c, question.inputs);
  std::map<std::string, RuledTensor> tensors;
  tensors["got"] = {Get(question.inputs, "expected"), c.rule};
  return std::make_unique<RuledTensorSource>(std::move(tensors));
}

[[noreturn]] void ThrowNoTensors(CaseKind kind) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("a {} case is a list of operations and has no tensors to compare; "
                          "kvcheck run judges it on an implementation",
                          Name(kind)));
}
std::unique_ptr<ExpectedSource> ExpectedOf(const CacheCase&, const Question&) {
  ThrowNoTensors(CaseKind::kCache);
}
std::unique_ptr<ExpectedSource> ExpectedOf(const PrefixCase&, const Question&) {
  ThrowNoTensors(CaseKind::kPrefix);
}

// By which rule special values of a kind are judged; null: that of the options.
constexpr KindTable<const SpecialPolicy*> kSpecialPolicies = {{{
    nullptr,         // codec
    nullptr,         // attention
    &kTensorPolicy,  // tensor
    nullptr,         // cache
    nullptr,         // prefix
}}};

// Of queries that see no key (attention_source.h). Other kinds have no such reasons.
void AddLseWarnings(Verdict* verdict) {
  const auto count = [](const std::vector<ReasonCount>& counts, std::string_view reason) {
    int64_t elements = 0;
    for (const ReasonCount& one : counts) elements += one.reason == reason ? one.elements : 0;
    return elements;
  };
  for (OutputVerdict& output : verdict->outputs) {
    if (const int64_t left = count(output.not_judged, kLseNotJudged); left > 0) {
      output.warnings.push_back(
          fmt::format("of {} that see no key the log-sum-exp was not judged: under "
                      "masked_row=mean it is what the kernel has in place of -inf",
                      left == 1 ? "1 query" : fmt::format("{} queries", left)));
    }
    if (const int64_t other = count(output.alternatives, kLseOfOthers); other > 0) {
      output.warnings.push_back(
          fmt::format("of {} that see no key the log-sum-exp is not -inf, but +inf (as of "
                      "FlashAttention-2), 0 (PyTorch on CPUs), NaN beside NaN outputs, or a number "
                      "below all scores (FlashInfer): a merge of partial results must know it",
                      other == 1 ? "1 query" : fmt::format("{} queries", other)));
    }
  }
}

}  // namespace

Outcome OutcomeOf(LossKind kind) {
  if (kind == LossKind::kCrashed) return Outcome::kCrashed;
  if (kind == LossKind::kNoRoom) return Outcome::kMistrusted;
  return kind == LossKind::kTimedOut ? Outcome::kTimedOut : Outcome::kFail;
}

std::unique_ptr<ExpectedSource> MakeExpected(const Question& question) {
  Validate(question.c);
  return std::visit([&](const auto& c) { return ExpectedOf(c, question); }, question.c);
}

Verdict EvaluateCase(const Question& question, const ObservedSource& observed, JudgeOptions options,
                     const Cancel& cancel) {
  const CaseKind kind = KindOf(question.c);
  const bool is_auto = HasPlan(kind) && question.plan.name == kAutoPlan;
  if (is_auto && options.strict) {
    throw Error(ErrorCode::kUsage,
                "a plan that is chosen by the verdict proves nothing: where warnings fail, declare "
                "the plan of the kernel (kvcheck plans)",
                "plan=auto");
  }
  const std::unique_ptr<ExpectedSource> expected = MakeExpected(question);
  if (kSpecialPolicies[kind] != nullptr) options.special = *kSpecialPolicies[kind];
  Verdict verdict = Judge(CancellableSource(*expected, cancel), observed, options);
  AddLseWarnings(&verdict);
  verdict.case_text = Print(question.c);
  if (HasPlan(kind)) verdict.plan = Print(question.plan);
  verdict.profile = Print(question.profile);
  for (std::string& warning : ScopeWarnings(question)) {
    verdict.warnings.push_back(std::move(warning));
  }
  if (is_auto) {
    verdict.warnings.push_back(FitText(FitKnownPlans(question, observed, options, cancel)));
  }
  return verdict;
}

std::string CommandPlan(const Plan& plan) {
  if (!plan.name.empty() && FindKnownPlan(plan.name) != nullptr) {
    const std::string base = "base=" + plan.name;
    if (ParsePlan(base) == plan) return base;
  }
  return Print(plan);
}

std::vector<std::string> MustSee(const std::string& list, bool strict, Rule rule) {
  std::vector<std::string> all;
  for (const FaultDirection& direction : FaultDirections()) all.emplace_back(direction.name);
  const bool sees = rule == Rule::kStatistics;
  if (list == "none" || (list.empty() && !(strict && sees))) return {};
  if (!sees) {
    throw Error(ErrorCode::kUsage,
                "what a verdict could not have seen is known by statistics only; drop the rule "
                "'bound', or the list",
                "must-see");
  }
  if (list == "standard" || list.empty()) return all;
  std::vector<std::string> names;
  for (const Piece& piece : Split(WholeLine(list), ',')) {
    const std::string name(piece.text);
    if (std::find(all.begin(), all.end(), name) == all.end()) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("'{}' is none of the faults that a verdict is asked about{}: standard, "
                      "none, or some of: {}",
                      Shortened(name, 200), DidYouMean(name, all), fmt::join(all, ", ")),
          "must-see");
    }
    names.push_back(name);
  }
  return names;
}

std::string JudgeArguments(const JudgeOptions& options) {
  std::string text;
  if (options.rule != Rule::kStatistics) text += fmt::format(" --rule {}", Name(options.rule));
  if (!options.must_see.empty() && !options.strict) {
    text += fmt::format(" --must-see {}",
                        options.must_see == MustSee("standard", true, options.rule)
                            ? "standard"
                            : ShellWord(fmt::format("{}", fmt::join(options.must_see, ","))));
  }
  if (options.sample_rows == 0) return text;
  text += fmt::format(" --rows {}", options.sample_rows);
  if (options.sample_seed != 1) text += fmt::format(" --rows-seed {}", options.sample_seed);
  return text;
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

bool IsLarge(const Case& c) {
  constexpr double kMostWork = 1 << 26;  // products of a query with keys and values, or elements
  double work = 0;
  for (const auto& specs : {InputSpecs(c), OutputSpecs(c)}) {
    for (const auto& [name, spec] : specs) work += static_cast<double>(spec.shape.ElementCount());
  }
  if (const auto* attention = std::get_if<AttentionCase>(&c)) {
    work += static_cast<double>(attention->batch) * static_cast<double>(attention->query_heads) *
            static_cast<double>(attention->query_len) * static_cast<double>(attention->kv_len) *
            static_cast<double>(attention->k_dim + attention->v_dim);
  }
  return work > kMostWork;
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
  if (implementation.Run(question.c, question.inputs, sink) != RunOutcome::kAnswered) {
    return std::nullopt;
  }
  return MemorySink(std::move(sink.tensors()));
}

Verdict AskAndJudge(Implementation& implementation, const std::string& name, Question question,
                    const StatedBySelf& stated, const JudgeOptions& options, std::string* loss,
                    const Cancel& cancel) {
  const std::string_view kind = KindName(question.c);
  CheckInputs(question.c, question.inputs);
  CancellableSink sink(cancel);
  RunOutcome outcome = RunOutcome::kUnsupported;
  try {
    outcome = implementation.Run(question.c, question.inputs, sink);
  } catch (const ImplementationLoss& lost) {
    if (loss != nullptr) *loss = fmt::format("{} {}", kind, lost.End());
    return WithoutJudging(OutcomeOf(lost.kind()), lost.reason());
  }
  const std::string reason = implementation.Reason();
  if (outcome == RunOutcome::kRefused) {
    if (loss != nullptr) *loss = fmt::format("{} refused: {}", kind, WithoutNumbers(reason));
    return WithoutJudging(Outcome::kFail, "a legal case was refused: " + reason);
  }
  if (outcome == RunOutcome::kUnsupported) {
    return WithoutJudging(Outcome::kUnsupported,
                          fmt::format("implementation '{}' declines this case{}", name,
                                      reason.empty() ? "" : ": " + reason));
  }
  const MemorySink answer(std::move(sink.tensors()));
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
    Verdict verdict = EvaluateCase(question, answer, options, cancel);
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
