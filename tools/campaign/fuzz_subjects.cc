#include "tools/campaign/fuzz_subjects.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "fuzz/draw_attention.h"
#include "fuzz/draw_codec.h"
#include "fuzz/draw_prefix.h"
#include "fuzz/draw_trace.h"
#include "fuzz/shrink_prefix.h"
#include "fuzz/shrink_trace.h"
#include "reference/data/generator.h"
#include "reference/prefix/history_probes.h"
#include "reference/prefix/history_result.h"
#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "reference/trace/probes.h"
#include "reference/trace/trace_space.h"
#include "tools/campaign/campaign_kind.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

class AnsweredSubject : public Subject {
 public:
  AnsweredSubject(Answerer answerer, uint64_t seed, const Cancel& cancel)
      : answerer_(std::move(answerer)), seed_(seed), cancel_(cancel) {}

  std::string Kind() const override { return std::string(Name(answerer_.kind)); }
  std::string Implementation() const override { return answerer_.name; }
  std::string Version() const override { return answerer_.version; }
  std::string Origin(int64_t index) const override {
    return fmt::format("case {} of seed {}", index, seed_);
  }
  std::string Shown() const override { return answerer_.Shown(); }
  std::unique_ptr<CaseJudge> MakeJudge(std::chrono::milliseconds limit) const override {
    return MakeCaseJudge(answerer_, {}, limit, cancel_);
  }
  bool Supervises() const override { return answerer_.foreign; }
  std::string StepName(const CaseEntry&, int64_t) const override { return ""; }
  std::string SizeOf(const CaseEntry& entry) const override {
    int64_t elements = 0;
    for (const auto& [name, spec] : InputSpecs(entry.c)) elements += spec.shape.ElementCount();
    return Plural(elements, "input element");
  }
  ShrunkEntry Shrink(const CaseEntry& entry, const StillFails& still_fails,
                     int64_t max_runs) const override {
    return ShrinkEntry(entry, still_fails, max_runs, WithinSpaces(entry.c));
  }
  std::string Command(const CaseEntry& entry) const override {
    return RunCommand(entry, answerer_);
  }

 protected:
  // What a case may be made into; everything where the case itself is in no space.
  virtual std::function<bool(const Case&)> WithinSpaces(const Case&) const { return {}; }
  template <typename C, typename Space>
  static std::function<bool(const Case&)> Within(const std::vector<Space>& spaces, const Case& c) {
    const auto within = [&spaces](const Case& candidate) {
      return std::any_of(spaces.begin(), spaces.end(),
                         [&](const Space& space) { return HasIn(space, std::get<C>(candidate)); });
    };
    if (spaces.empty() || !within(c)) return {};
    return within;
  }

  Answerer answerer_;
  uint64_t seed_;
  Cancel cancel_;

 private:
  static bool HasIn(const PrefixSpace& space, const PrefixCase& c) { return space.HasCase(c); }
  template <typename Space, typename C>
  static bool HasIn(const Space& space, const C& c) {
    return space.Has(c);
  }
};

class CacheSubject : public AnsweredSubject {
 public:
  CacheSubject(Answerer answerer, const DrawSettings& settings, const Cancel& cancel)
      : AnsweredSubject(std::move(answerer), settings.seed, cancel),
        drawer_(OptionsOf(answerer_, settings)),
        observe_(settings.observe) {}

  std::vector<std::string> ProbeNames() const override {
    std::vector<std::string> names;
    for (int i = 0; i < kProbes; ++i) names.emplace_back(Name(static_cast<Probe>(i)));
    return names;
  }
  std::vector<std::string> StepKinds() const override {
    std::vector<std::string> names;
    for (int i = 0; i < kCacheOpKinds; ++i) names.emplace_back(Name(static_cast<CacheOpKind>(i)));
    return names;
  }
  bool DrawsEverything() const override { return answerer_.cache_spaces.empty(); }
  CaseEntry Draw(int64_t index) const override {
    CaseEntry entry;
    CacheCase c = drawer_.Draw(seed_, static_cast<uint64_t>(index));
    if (observe_) c.setup.observe = *observe_;
    entry.c = std::move(c);
    return entry;
  }
  std::string StepName(const CaseEntry& entry, int64_t step) const override {
    const auto& ops = std::get<CacheCase>(entry.c).ops;
    return step < std::ssize(ops) ? std::string(Name(ops[static_cast<size_t>(step)].kind)) : "";
  }
  std::string SizeOf(const CaseEntry& entry) const override {
    return Plural(std::ssize(std::get<CacheCase>(entry.c).ops), "operation");
  }
  ShrunkEntry Shrink(const CaseEntry& entry, const StillFails& still_fails,
                     int64_t max_runs) const override {
    const auto with = [&](const CacheCase& c) {
      CaseEntry other = entry;
      other.c = c;
      return other;
    };
    const auto& trace = std::get<CacheCase>(entry.c);
    const ShrinkResult result = ShrinkTrace(
        trace, [&](const CacheCase& c) { return still_fails(with(c)); }, max_runs,
        kvcheck::WithinSpaces(answerer_.cache_spaces, trace));
    return {with(result.c), result.runs, result.complete};
  }

 private:
  static TraceDrawOptions OptionsOf(const Answerer& answerer, const DrawSettings& settings) {
    TraceDrawOptions options;
    options.spaces = answerer.cache_spaces;
    options.layouts = settings.layouts;
    options.formats = settings.formats;
    return options;
  }

  mutable TraceDrawer drawer_;  // keeps its memory; what it draws does not depend on it
  std::optional<Observe> observe_;
};

class PrefixSubject : public AnsweredSubject {
 public:
  PrefixSubject(Answerer answerer, const DrawSettings& settings, const Cancel& cancel)
      : AnsweredSubject(std::move(answerer), settings.seed, cancel),
        drawer_({answerer_.prefix_spaces, settings.formats}),
        observe_(settings.observe) {}

  std::vector<std::string> ProbeNames() const override {
    std::vector<std::string> names;
    for (int i = 0; i < kHistoryProbes; ++i) {
      names.emplace_back(Name(static_cast<HistoryProbe>(i)));
    }
    return names;
  }
  std::vector<std::string> StepKinds() const override {
    std::vector<std::string> names;
    for (int i = 0; i < kPrefixOpKinds; ++i) names.emplace_back(Name(static_cast<PrefixOpKind>(i)));
    return names;
  }
  bool DrawsEverything() const override { return answerer_.prefix_spaces.empty(); }
  CaseEntry Draw(int64_t index) const override {
    CaseEntry entry;
    PrefixCase c = drawer_.Draw(seed_, static_cast<uint64_t>(index));
    if (observe_) c.setup.observe = *observe_;
    entry.c = std::move(c);
    return entry;
  }
  std::string StepName(const CaseEntry& entry, int64_t step) const override {
    return step < 0 ? "" : OperationName(std::get<PrefixCase>(entry.c), step);
  }
  std::string SizeOf(const CaseEntry& entry) const override {
    return Plural(std::ssize(std::get<PrefixCase>(entry.c).ops), "operation");
  }
  ShrunkEntry Shrink(const CaseEntry& entry, const StillFails& still_fails,
                     int64_t max_runs) const override {
    const auto with = [&](const PrefixCase& c) {
      CaseEntry other = entry;
      other.c = c;
      return other;
    };
    const auto& history = std::get<PrefixCase>(entry.c);
    std::function<bool(const PrefixCase&)> has;
    if (const auto within = Within<PrefixCase>(answerer_.prefix_spaces, entry.c)) {
      has = [within](const PrefixCase& c) { return within(Case(c)); };
    }
    const ShrunkPrefix result = ShrinkPrefix(
        history, [&](const PrefixCase& c) { return still_fails(with(c)); }, max_runs, has);
    return {with(result.c), result.runs, result.complete};
  }

 private:
  PrefixDrawer drawer_;
  std::optional<Observe> observe_;
};

class AttentionSubject : public AnsweredSubject {
 public:
  AttentionSubject(Answerer answerer, uint64_t seed, const Cancel& cancel)
      : AnsweredSubject(std::move(answerer), seed, cancel) {
    // A space of which nothing can be drawn is refused before the campaign begins.
    for (size_t i = 0; i < answerer_.attention_spaces.size(); ++i) {
      AttentionSubject::Draw(static_cast<int64_t>(i));
    }
  }

  bool DrawsEverything() const override { return answerer_.attention_spaces.empty(); }
  std::function<bool(const Case&)> WithinSpaces(const Case& c) const override {
    return Within<AttentionCase>(answerer_.attention_spaces, c);
  }
  CaseEntry Draw(int64_t index) const override {
    const std::vector<AttentionSpace>& spaces = answerer_.attention_spaces;
    Generator random(seed_, "fuzz attention", static_cast<uint64_t>(index));
    const uint64_t seed = random.Bits();
    const DrawnAttention drawn =
        spaces.empty()
            ? DrawAttention(seed, {})
            : DrawAttention(seed, {}, spaces[static_cast<size_t>(index) % spaces.size()]);
    CaseEntry entry;
    entry.c = drawn.c;
    if (answerer_.conventions == Conventions::kOwn) return entry;
    Profile profile = drawn.profile;
    if (answerer_.conventions == Conventions::kOwnButMaskedRows) {
      profile = {};
      profile.masked_row = drawn.profile.masked_row;
    } else {
      entry.plan = Print(drawn.plan);
    }
    entry.profile = Print(profile);
    return entry;
  }
};

class CodecSubject : public AnsweredSubject {
 public:
  CodecSubject(Answerer answerer, const DrawSettings& settings, const Cancel& cancel)
      : AnsweredSubject(std::move(answerer), settings.seed, cancel),
        drawer_(OptionsOf(answerer_, settings)) {}

  bool DrawsEverything() const override { return answerer_.codec_spaces.empty(); }
  std::function<bool(const Case&)> WithinSpaces(const Case& c) const override {
    return Within<CodecCase>(answerer_.codec_spaces, c);
  }
  CaseEntry Draw(int64_t index) const override {
    CaseEntry entry;
    entry.c = drawer_.Draw(seed_, static_cast<uint64_t>(index));
    return entry;
  }

 private:
  static CodecDrawOptions OptionsOf(const Answerer& answerer, const DrawSettings& settings) {
    CodecDrawOptions options;
    options.spaces = answerer.codec_spaces;
    const std::vector<Glob> globs = ParseGlobs(settings.formats);
    for (const KvFormat& format : AllKvFormats()) {
      if (MatchesAny(globs, Print(format))) options.formats.push_back(format);
    }
    for (const Glob& glob : globs) {
      const bool is_used =
          std::any_of(options.formats.begin(), options.formats.end(),
                      [&](const KvFormat& format) { return glob.Matches(Print(format)); });
      if (is_used) continue;
      throw Error(ErrorCode::kUsage, fmt::format("no format matches '{}'", glob.text()),
                  "--format");
    }
    return options;
  }

  CodecDrawer drawer_;
};

void Refuse(CaseKind kind, const std::vector<std::string>& globs, const char* option) {
  if (globs.empty()) return;
  throw Error(ErrorCode::kUsage, fmt::format("it restricts no cases of {}: leave it out", Name(kind)),
              option);
}

void RefuseStates(CaseKind kind, const DrawSettings& settings) {
  if (settings.observe) {
    throw Error(ErrorCode::kUsage, fmt::format("cases of {} have no states", Name(kind)),
                "--observe");
  }
  Refuse(kind, settings.layouts, "--layout");
}

std::unique_ptr<Subject> MakeCacheSubject(const Answerer& answerer, const DrawSettings& settings,
                                          const Cancel& cancel) {
  return std::make_unique<CacheSubject>(answerer, settings, cancel);
}

std::unique_ptr<Subject> MakeCodecSubject(const Answerer& answerer, const DrawSettings& settings,
                                          const Cancel& cancel) {
  RefuseStates(answerer.kind, settings);
  return std::make_unique<CodecSubject>(answerer, settings, cancel);
}

std::unique_ptr<Subject> MakeAttentionSubject(const Answerer& answerer,
                                              const DrawSettings& settings, const Cancel& cancel) {
  RefuseStates(answerer.kind, settings);
  Refuse(answerer.kind, settings.formats, "--format");
  return std::make_unique<AttentionSubject>(answerer, settings.seed, cancel);
}

std::unique_ptr<Subject> MakePrefixSubject(const Answerer& answerer, const DrawSettings& settings,
                                           const Cancel& cancel) {
  Refuse(answerer.kind, settings.layouts, "--layout");
  return std::make_unique<PrefixSubject>(answerer, settings, cancel);
}

// Traces take microseconds, cases of attention milliseconds; the caches have most states.
constexpr KindTable<CampaignKind> kCampaignKinds = {{{
    {MakeCodecSubject, 20'000, 32, 1, 10, 1},     // codec
    {MakeAttentionSubject, 1'000, 4, 2, 200, 1},  // attention
    {},                                           // tensor
    {MakeCacheSubject, 100'000, 256, 0, 1, 6},    // cache
    {MakePrefixSubject, 20'000, 32, 3, 5, 2},     // prefix
}}};

}  // namespace

const CampaignKind& CampaignKindOf(CaseKind kind) { return kCampaignKinds[kind]; }

std::vector<CaseKind> DrawnKinds() {
  std::vector<CaseKind> kinds;
  for (size_t i = 0; i < kCaseKinds; ++i) {
    if (kCampaignKinds.rows[i].make_subject != nullptr) kinds.push_back(KindAt(i));
  }
  std::sort(kinds.begin(), kinds.end(), [](CaseKind a, CaseKind b) {
    return kCampaignKinds[a].gate_place < kCampaignKinds[b].gate_place;
  });
  return kinds;
}

std::unique_ptr<Subject> MakeSubject(const Answerer& answerer, const DrawSettings& settings,
                                     const Cancel& cancel) {
  const auto make = kCampaignKinds[answerer.kind].make_subject;
  KVCHECK_CHECK(make != nullptr, "a campaign of a kind of which nothing is drawn");
  return make(answerer, settings, cancel);
}

}  // namespace kvcheck
