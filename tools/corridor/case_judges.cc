#include "tools/corridor/case_judges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "reference/attention/simulated_kernel.h"
#include "reference/cache/model_cache.h"
#include "reference/spec/error.h"
#include "reference/trace/run_trace.h"
#include "reference/trace/trace_space.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/history_case_judge.h"
#include "tools/corridor/implementations.h"
#include "tools/corridor/judge_trace.h"
#include "tools/corridor/left_open.h"
#include "tools/corridor/registry.h"
#include "tools/report/number_text.h"
#include "tools/report/output_text.h"

namespace kvcheck {
namespace {

Outcome OutcomeOf(const Error& error) {
  return error.code() == ErrorCode::kUnsupported ? Outcome::kUnsupported : Outcome::kIllegalCase;
}

// Says of what proved nothing that no answer could have changed that.
void Blame(JudgedCase* judged, std::string_view why) {
  judged->by_data = true;
  judged->signature += kByItsOwnData;
  judged->reason += why;
}

constexpr std::string_view kLikeTheReference =
    "; the reference's own answer proves nothing here either";

// "new: K and V in one format": what cases that are declined for one reason have in common.
std::string DeclinedBy(const CacheCase& c, const TraceResult& result) {
  const auto at = static_cast<size_t>(result.operation);
  const std::string_view op = result.operation < 0 ? "start" : Name(c.ops[at].kind);
  return fmt::format("{}: {}", op, WithoutNumbers(result.declined));
}

class CacheJudge : public CaseJudge {
 public:
  CacheJudge(const std::string& implementation, const RemoteLimits& limits, Cancel cancel)
      : cancel_(std::move(cancel)),
        factory_(MakeCacheFactory(implementation, Waiting(limits))),
        runner_(factory_.get()) {}

  JudgedCase Judge(const CaseEntry& entry, ItemMark& mark, CaseCounts* counts) override {
    const auto& c = std::get<CacheCase>(entry.c);
    const JudgedTrace result = Judged(c, &mark, /*explains=*/false);
    counts->operations += result.counts.operations;
    counts->states += result.counts.states;
    counts->elements += result.counts.outputs;
    const auto& declined = result.counts.unsupported_by_kind;
    counts->declined.resize(declined.size());
    for (size_t i = 0; i < declined.size(); ++i) counts->declined[i] += declined[i];
    counts->probes.resize(result.probes.size());
    for (size_t i = 0; i < result.probes.size(); ++i) counts->probes[i] += result.probes[i];
    if (result.outcome == Outcome::kPass) return {};
    JudgedCase judged = {result.outcome, SignatureOf(c, result), result.reason, result.operation};
    if (result.outcome == Outcome::kMistrusted && result.by_trace) {
      Blame(&judged, "");
    } else if (result.outcome == Outcome::kMistrusted && IsMistrustedOfTheModel(c)) {
      Blame(&judged, kLikeTheReference);
    }
    if (result.outcome == Outcome::kUnsupported) judged.signature += ": " + DeclinedBy(c, result);
    return judged;
  }

  JudgedCase JudgeLike(const CaseEntry& entry, ItemMark& mark, const std::string& signature,
                       bool explains) override {
    CaseCounts counts;
    JudgedCase judged = Judge(entry, mark, &counts);
    if (!explains || judged.outcome != Outcome::kFail || judged.signature != signature) {
      return judged;
    }
    const auto& c = std::get<CacheCase>(entry.c);
    const bool attends = judged.step >= 0 && judged.step < std::ssize(c.ops) &&
                         c.ops[static_cast<size_t>(judged.step)].kind == CacheOpKind::kAttend;
    if (!attends) return judged;
    const JudgedTrace result = Judged(c, &mark, /*explains=*/true);
    if (result.attention) judged.explanation = ExplanationOf(*result.attention);
    return judged;
  }

  Verdict Explain(const CaseEntry& entry, ItemMark& mark, std::string* signature) override {
    const auto& c = std::get<CacheCase>(entry.c);
    const JudgedTrace result = Judged(c, &mark, /*explains=*/true);
    if (result.outcome != Outcome::kPass) *signature = SignatureOf(c, result);
    return VerdictOf(c, result, *factory_);
  }

 private:
  // The same, with a sign of life of the case that is judged.
  RemoteLimits Waiting(RemoteLimits limits) {
    limits.on_wait = [this] {
      if (mark_ != nullptr) mark_->Alive();
      cancel_.ThrowIfRequested();
    };
    return limits;
  }

  bool IsMistrustedOfTheModel(const CacheCase& c) {
    if (model_ == nullptr) {
      model_ = std::make_unique<ModelFactory>();
      model_runner_ = std::make_unique<TraceRunner>(model_.get());
    }
    try {
      return JudgeTrace(c, model_runner_.get(), {}).outcome == Outcome::kMistrusted;
    } catch (const Error&) {
      return false;
    }
  }

  JudgedTrace Judged(const CacheCase& c, ItemMark* mark, bool explains) {
    TraceOptions options;
    options.explains = explains;
    options.on_operation = [mark](int64_t index) { mark->StartStep(index); };
    mark_ = mark;
    const std::unique_ptr<ItemMark*, void (*)(ItemMark**)> unmark(
        &mark_, [](ItemMark** place) { *place = nullptr; });
    try {
      return JudgeTrace(c, &runner_, options);
    } catch (const Error& error) {
      JudgedTrace result;
      result.outcome = OutcomeOf(error);
      result.reason = error.message();
      return result;
    }
  }

  Cancel cancel_;
  ItemMark* mark_ = nullptr;  // of the case that is judged
  std::unique_ptr<CacheFactory> factory_;
  TraceRunner runner_;
  // Asked where the implementation's answer proved nothing; absent until then.
  std::unique_ptr<CacheFactory> model_;
  std::unique_ptr<TraceRunner> model_runner_;
};

// The definition written out in the arithmetic of the case's own types: what a case asks of it and
// cannot prove, it can prove of nobody.
Plan PlainPlan(const AttentionCase& c) {
  if (c.q != DType::kFloat64) return ParsePlan("base=plain_f32 dequantize=stored");
  return ParsePlan(
      "base=plain_f32 dequantize=stored qk=f64:sequential pv=f64:sequential l=f64:sequential "
      "op=f64 scores=f64 p=f64 tanh_error=2^-51 exp_error=2^-51 exp_floor=2^-1022 log_error=2^-51");
}

// The reference's own answer to the question, of the kinds that have one; null: none.
std::unique_ptr<Implementation> ReferenceOf(const AttentionCase& c, Question* question) {
  question->plan = PlainPlan(c);
  return std::make_unique<SimulatedKernel>(question->plan, question->profile);
}
std::unique_ptr<Implementation> ReferenceOf(const CodecCase&, Question* question) {
  return std::make_unique<ReferenceCodec>(question->profile);
}
std::unique_ptr<Implementation> ReferenceOf(const TensorCase&, Question*) { return nullptr; }
std::unique_ptr<Implementation> ReferenceOf(const CacheCase&, Question*) { return nullptr; }
std::unique_ptr<Implementation> ReferenceOf(const PrefixCase&, Question*) { return nullptr; }

// Whether the reference's own answer is MISTRUSTED too.
bool IsMistrustedOfTheReference(const CaseEntry& entry, const std::string& implementation,
                                const Cancel& cancel) {
  try {
    Question question = QuestionOf(entry, implementation);
    const std::unique_ptr<Implementation> reference =
        std::visit([&](const auto& c) { return ReferenceOf(c, &question); }, entry.c);
    if (reference == nullptr) return false;
    const std::optional<MemorySink> answer = Answer(*reference, question, cancel);
    JudgeOptions options;
    options.explain = false;
    return answer &&
           EvaluateCase(question, *answer, options, cancel).outcome == Outcome::kMistrusted;
  } catch (const Error&) {
    return false;
  }
}

// Of a failure that did not repeat when the case was asked again.
constexpr const char* kOnce = ", not repeated";
constexpr const char* kOnceReason = "; asked again, the answer was another one";

// What a format's codec is, for a signature: "affine:4", "f8e4m3fn".
std::string FamilyOf(const KvFormat& format) {
  return IsPlain(format) ? Print(format) : KindOf(format);
}

class TensorJudge : public CaseJudge {
 public:
  TensorJudge(std::string implementation, const JudgeOptions& options, const RemoteLimits& limits,
              Cancel cancel)
      : implementation_(std::move(implementation)),
        options_(options),
        limits_(limits),
        cancel_(std::move(cancel)) {}

  JudgedCase Judge(const CaseEntry& entry, ItemMark& mark, CaseCounts* counts) override {
    return JudgeWith(entry, mark, counts, nullptr);
  }

  // Signatures of tensors have their cause.
  JudgedCase JudgeLike(const CaseEntry& entry, ItemMark& mark, const std::string& signature,
                       bool) override {
    CaseCounts counts;
    return JudgeWith(entry, mark, &counts, &signature);
  }

  Verdict Explain(const CaseEntry& entry, ItemMark& mark, std::string* signature) override {
    std::string loss;
    Verdict verdict = Evaluate(entry, options_, &mark, &loss);
    if (verdict.outcome != Outcome::kPass) {
      *signature = loss.empty() ? SignatureOf(entry.c, verdict) : loss;
    }
    return verdict;
  }

 private:
  // like: a failure that cannot have this signature is not explained; null: each is.
  JudgedCase JudgeWith(const CaseEntry& entry, ItemMark& mark, CaseCounts* counts,
                       const std::string* like) {
    JudgeOptions options;
    options.explain = false;
    std::string loss;
    Verdict verdict = Evaluate(entry, options, &mark, &loss);
    if (!loss.empty()) return {verdict.outcome, loss, ReasonOf(verdict)};
    for (const OutputVerdict& output : verdict.outputs) counts->elements += output.counts.judged;
    if (verdict.outcome == Outcome::kPass) return {};
    if (verdict.outcome == Outcome::kUnsupported) {
      const std::string reason = ReasonOf(verdict);
      return {verdict.outcome, SignatureOf(entry.c, verdict) + ": " + WithoutNumbers(reason),
              reason};
    }
    // What an explanation adds to a signature stands at its end.
    if (verdict.outcome == Outcome::kFail && like != nullptr &&
        !like->starts_with(SignatureOf(entry.c, verdict))) {
      return {Outcome::kFail, SignatureOf(entry.c, verdict), ReasonOf(verdict)};
    }
    if (verdict.outcome == Outcome::kFail) {
      options.explain = true;
      Verdict explained = Evaluate(entry, options, &mark, &loss);
      // What does not repeat (a race, memory that nobody wrote) has failed all the same.
      if (!loss.empty() || explained.outcome != Outcome::kFail) {
        return {Outcome::kFail, SignatureOf(entry.c, verdict) + kOnce,
                ReasonOf(verdict) + kOnceReason};
      }
      verdict = std::move(explained);
    }
    JudgedCase judged = {verdict.outcome, SignatureOf(entry.c, verdict), ReasonOf(verdict)};
    judged.explanation = ExplanationOf(verdict);
    if (verdict.outcome == Outcome::kMistrusted) {
      const Cancel cancel = cancel_.WithSignOfLife([&] { mark.Alive(); });
      if (IsMistrustedOfTheReference(entry, implementation_, cancel)) {
        Blame(&judged, kLikeTheReference);
      }
    }
    return judged;
  }

  Verdict Evaluate(const CaseEntry& entry, const JudgeOptions& options, ItemMark* mark,
                   std::string* loss) {
    int64_t step = 0;
    const Cancel cancel = cancel_.WithSignOfLife([&] { mark->StartStep(step++); });
    RemoteLimits limits = limits_;
    limits.on_wait = cancel;
    try {
      Question question = QuestionOf(entry, implementation_);
      const std::unique_ptr<Implementation> implementation = MakeImplementation(
          KindOf(entry.c), implementation_, question.plan, question.profile, limits);
      const StatedBySelf stated = {!StatedBy(KindOf(entry.c), implementation_).plan.empty(),
                                   entry.profile.empty(), entry.profile};
      return AskAndJudge(*implementation, implementation_, std::move(question), stated, options,
                         loss, cancel);
    } catch (const Error& error) {
      return WithoutJudging(OutcomeOf(error), error.message());
    }
  }

  std::string implementation_;
  JudgeOptions options_;
  RemoteLimits limits_;
  Cancel cancel_;
};

}  // namespace

std::string Answerer::Shown() const {
  const std::string text = title + " " + version;
  return title == name ? text : fmt::format("{} ({})", text, name);
}

std::vector<std::string> Answerer::Notices(std::string_view command, bool quiet) const {
  std::vector<std::string> notices;
  if (!foreign) return notices;
  if (!quiet) notices.push_back(fmt::format("kvcheck {}: {} is judged", command, Shown()));
  for (const std::string& text : warnings) {
    notices.push_back(fmt::format("kvcheck {}: warning: {}", command, text));
  }
  return notices;
}

Question QuestionOf(const CaseEntry& entry, const std::string& implementation) {
  Question question;
  question.c = entry.c;
  const StatedAnswer& stated = StatedBy(KindOf(entry.c), implementation);
  question.plan = ParsePlan(!stated.plan.empty() ? stated.plan
                            : entry.plan.empty() ? kDefaultCasePlan
                                                 : entry.plan);
  question.profile = entry.profile.empty() ? stated.profile : ParseProfile(entry.profile);
  question.inputs = GenerateCaseInputs(question.c, question.profile);
  return question;
}

namespace {

// What is asked, as a part of a signature.
std::string QuestionText(const CodecCase& c) {
  return fmt::format(" {} {}", Name(c.direction), FamilyOf(c.format));
}
template <typename C>
std::string QuestionText(const C&) {
  return "";
}

// "vacuous", "no bound": the first word of why an output proves nothing.
std::string KindOfDoubt(const OutputVerdict& output) {
  if (output.counts.unbounded > 0) return "no bound";
  const std::string& reason = output.reasons.empty() ? "" : output.reasons[0];
  return reason.substr(0, std::min(reason.find(':'), reason.size()));
}

std::string FieldOf(const std::string& plan, const std::string& field) {
  const std::string words = " " + plan;
  const size_t at = words.find(" " + field + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + field.size() + 2;
  return words.substr(begin, words.find(' ', begin) - begin);
}

// Under which plan, and how that rounds: a bound as large as the data is the plan's or the data's.
std::string RoundingsOf(const Verdict& verdict) {
  const std::string& plan = verdict.plan;
  std::string text = FieldOf(plan, "name");
  for (const char* field : {"qk", "pv", "scores", "p"}) {
    const std::string value = FieldOf(plan, field);
    if (!value.empty()) text += fmt::format("{}{}={}", text.empty() ? "" : " ", field, value);
  }
  return text;
}

}  // namespace

std::string SignatureOf(const Case& c, const Verdict& verdict) {
  std::string text(KindName(c));
  text += std::visit([](const auto& kind) { return QuestionText(kind); }, c);
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.outcome != verdict.outcome) continue;
    text += " " + output.name;
    if (verdict.outcome == Outcome::kMistrusted) {
      const std::string plan = FieldOf(verdict.plan, "name");
      return fmt::format("{} MISTRUSTED: {}{}", text, KindOfDoubt(output),
                         plan.empty() ? "" : " under " + plan);
    }
    if (verdict.outcome != Outcome::kFail) break;
    if (!output.worst) return text + " shape";
    if (DecidedBy(output) == Rule::kStatistics) return text + " statistics";
    if (!std::isfinite(output.worst->got) || !std::isfinite(output.worst->expected)) {
      return text + " special_value";
    }
    text += output.rule == "bytes equal" ? " bytes" : " bound";
    // The named cause that explains the errors, where one does; never a number of it.
    if (!output.cause.empty()) text += ": " + output.cause;
    return text;
  }
  return fmt::format("{} {}", text, Name(verdict.outcome));
}

std::string ReasonOf(const Verdict& verdict) {
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.outcome != verdict.outcome) continue;
    if (verdict.outcome == Outcome::kFail && output.counts.failed > 0 && output.worst) {
      return WorstSentence(output);
    }
    if (output.reasons.empty()) continue;
    std::string reason = fmt::format("{}: {}", output.name, output.reasons[0]);
    if (verdict.outcome != Outcome::kMistrusted || verdict.plan.empty()) return reason;
    return fmt::format("{}; data={}, plan {}", reason, FieldOf(verdict.case_text, "data"),
                       RoundingsOf(verdict));
  }
  return verdict.reasons.empty() ? std::string(Name(verdict.outcome)) : verdict.reasons[0];
}

namespace {

std::unique_ptr<CaseJudge> MakeTensorJudge(const Answerer& answerer, const JudgeOptions& options,
                                           const RemoteLimits& limits, const Cancel& cancel) {
  return std::make_unique<TensorJudge>(answerer.name, options, limits, cancel);
}

std::unique_ptr<CaseJudge> MakeCacheJudge(const Answerer& answerer, const JudgeOptions&,
                                          const RemoteLimits& limits, const Cancel& cancel) {
  return std::make_unique<CacheJudge>(answerer.name, limits, cancel);
}

// What both kinds of capabilities say of whoever answers.
template <typename C>
void Describe(C&& capabilities, Answerer* answerer) {
  answerer->version = std::move(capabilities.version);
  answerer->foreign = capabilities.foreign;
  answerer->warnings = std::move(capabilities.warnings);
  if (capabilities.foreign) answerer->title = std::move(capabilities.name);
}

void DescribeCases(Answerer* answerer, const RemoteLimits& limits) {
  Capabilities capabilities =
      MakeImplementation(answerer->kind, answerer->name, ParsePlan(kDefaultCasePlan), {}, limits)
          ->GetCapabilities();
  const std::vector<std::string>& kinds = capabilities.kinds;
  if (std::find(kinds.begin(), kinds.end(), Name(answerer->kind)) == kinds.end()) {
    RefuseImplementation(answerer->kind, answerer->name);
  }
  answerer->conventions = capabilities.conventions;
  answerer->attention_spaces = std::move(capabilities.attention_spaces);
  answerer->codec_spaces = std::move(capabilities.codec_spaces);
  Describe(std::move(capabilities), answerer);
}

void DescribeCaches(Answerer* answerer, const RemoteLimits& limits) {
  CacheCapabilities capabilities = MakeCacheFactory(answerer->name, limits)->GetCapabilities();
  answerer->cache_spaces = std::move(capabilities.spaces);
  if (capabilities.foreign) {
    answerer->left_open = LeftOpen(capabilities.cache_profile);
    answerer->not_asked = NotAsked(answerer->cache_spaces);
  }
  Describe(std::move(capabilities), answerer);
}

void DescribePrefixes(Answerer* answerer, const RemoteLimits& limits) {
  PrefixCapabilities capabilities =
      MakePrefixImplementation(answerer->name, limits)->GetCapabilities();
  answerer->prefix_spaces = std::move(capabilities.spaces);
  if (capabilities.foreign) {
    answerer->left_open = LeftOpen(capabilities.prefix_profile);
    answerer->not_asked = NotAsked(answerer->prefix_spaces);
  }
  Describe(std::move(capabilities), answerer);
}

std::unique_ptr<CaseJudge> MakePrefixJudge(const Answerer& answerer, const JudgeOptions&,
                                           const RemoteLimits& limits, const Cancel& cancel) {
  return MakeHistoryJudge(answerer.name, limits, cancel);
}

// Of the kinds that an implementation can be asked about.
struct AskedKind {
  void (*describe)(Answerer* answerer, const RemoteLimits& limits) = nullptr;
  std::unique_ptr<CaseJudge> (*make_judge)(const Answerer&, const JudgeOptions&,
                                           const RemoteLimits&, const Cancel&) = nullptr;
};

constexpr KindTable<AskedKind> kAskedKinds = {{{
    {DescribeCases, MakeTensorJudge},  // codec
    {DescribeCases, MakeTensorJudge},  // attention
    {},                                // tensor: nobody answers it
    {DescribeCaches, MakeCacheJudge},  // cache
    {DescribePrefixes, MakePrefixJudge},
}}};

template <typename Space, typename F>
bool AnyHas(const std::vector<Space>& spaces, F has) {
  return spaces.empty() || std::any_of(spaces.begin(), spaces.end(), has);
}
bool HasCase(const Answerer& answerer, const AttentionCase& c) {
  return AnyHas(answerer.attention_spaces, [&](const auto& space) { return space.Has(c); });
}
bool HasCase(const Answerer& answerer, const CodecCase& c) {
  return AnyHas(answerer.codec_spaces, [&](const auto& space) { return space.Has(c); });
}
bool HasCase(const Answerer& answerer, const CacheCase& c) {
  return AnyHas(answerer.cache_spaces, [&](const auto& space) { return HasTrace(space, c); });
}
bool HasCase(const Answerer& answerer, const PrefixCase& c) {
  return AnyHas(answerer.prefix_spaces, [&](const auto& space) { return space.HasCase(c); });
}
bool HasCase(const Answerer&, const TensorCase&) { return true; }

}  // namespace

Answerer FindAnswerer(CaseKind kind, const std::string& name, const Cancel& cancel) {
  Answerer answerer;
  answerer.kind = kind;
  answerer.name = name.empty() ? DefaultImplementation(kind) : name;
  answerer.title = answerer.name;
  if (kAskedKinds[kind].describe == nullptr) {
    throw Error(ErrorCode::kUsage, "nobody is asked such a case", std::string(Name(kind)));
  }
  RemoteLimits limits;
  limits.on_wait = cancel;
  kAskedKinds[kind].describe(&answerer, limits);
  return answerer;
}

bool HasAnswerer(CaseKind kind, const std::string& name, const Cancel& cancel) {
  try {
    FindAnswerer(kind, name, cancel);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage && error.code() != ErrorCode::kParse) throw;
    return false;
  }
}

bool IsInSpaces(const Answerer& answerer, const Case& c) {
  return std::visit([&](const auto& kind) { return HasCase(answerer, kind); }, c);
}

std::unique_ptr<CaseJudge> MakeCaseJudge(const Answerer& answerer, const JudgeOptions& options,
                                         std::chrono::milliseconds limit, const Cancel& cancel) {
  RemoteLimits limits;
  limits.since_progress = limit;
  return kAskedKinds[answerer.kind].make_judge(answerer, options, limits, cancel);
}

std::string RunCommand(const CaseEntry& entry, const Answerer& answerer) {
  std::string text = "kvcheck run " + ShellWord(Print(entry.c));
  if (HasPlan(answerer.kind) && StatedBy(answerer.kind, answerer.name).plan.empty()) {
    const std::string plan = entry.plan.empty() ? kDefaultCasePlan : entry.plan;
    text += " --plan " + ShellWord(CommandPlan(ParsePlan(plan)));
  }
  if (!entry.profile.empty()) text += " --profile " + ShellWord(entry.profile);
  return text + " --impl " + ShellWord(answerer.name);
}

}  // namespace kvcheck
