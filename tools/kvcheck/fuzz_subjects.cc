#include "tools/kvcheck/fuzz_subjects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "fuzz/draw_attention.h"
#include "fuzz/draw_trace.h"
#include "fuzz/probes.h"
#include "fuzz/shrink_trace.h"
#include "reference/data/generator.h"
#include "reference/data/row_regime.h"
#include "reference/spec/error.h"
#include "tools/campaign/shrink_case.h"
#include "tools/compare/glob.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

class AnsweredSubject : public Subject {
 public:
  AnsweredSubject(Answerer answerer, uint64_t seed) : answerer_(std::move(answerer)), seed_(seed) {}

  std::string Kind() const override { return answerer_.kind; }
  std::string Implementation() const override { return answerer_.name; }
  std::string Version() const override { return answerer_.version; }
  std::string Origin(int64_t index) const override {
    return fmt::format("case {} of seed {}", index, seed_);
  }
  std::string Shown() const override { return answerer_.Shown(); }
  std::unique_ptr<CaseJudge> MakeJudge(std::chrono::milliseconds limit) const override {
    return MakeCaseJudge(answerer_, {}, limit);
  }
  bool Supervises() const override { return answerer_.remote; }
  std::string StepName(const CaseEntry&, int64_t) const override { return ""; }
  std::string SizeOf(const CaseEntry& entry) const override {
    int64_t elements = 0;
    for (const auto& [name, spec] : InputSpecs(entry.c)) elements += spec.shape.ElementCount();
    return Plural(elements, "input element");
  }
  ShrunkCase Shrink(const CaseEntry& entry, const StillFails& still_fails,
                    int64_t max_runs) const override {
    return ShrinkCase(entry, still_fails, max_runs);
  }
  std::string Command(const CaseEntry& entry) const override {
    return RunCommand(entry, answerer_);
  }

 protected:
  Answerer answerer_;
  uint64_t seed_;
};

class CacheSubject : public AnsweredSubject {
 public:
  CacheSubject(Answerer answerer, const DrawSettings& settings)
      : AnsweredSubject(std::move(answerer), settings.seed),
        drawer_(OptionsOf(settings)),
        observe_(settings.observe) {}

  std::vector<std::string> ProbeNames() const override {
    std::vector<std::string> names;
    for (int i = 0; i < kProbes; ++i) names.emplace_back(Name(static_cast<Probe>(i)));
    return names;
  }
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
  ShrunkCase Shrink(const CaseEntry& entry, const StillFails& still_fails,
                    int64_t max_runs) const override {
    const auto with = [&](const CacheCase& c) {
      CaseEntry other = entry;
      other.c = c;
      return other;
    };
    const ShrinkResult result = ShrinkTrace(
        std::get<CacheCase>(entry.c), [&](const CacheCase& c) { return still_fails(with(c)); },
        max_runs);
    return {with(result.c), result.runs, result.complete};
  }

 private:
  static TraceDrawOptions OptionsOf(const DrawSettings& settings) {
    TraceDrawOptions options;
    options.layouts = settings.layouts;
    options.formats = settings.formats;
    return options;
  }

  mutable TraceDrawer drawer_;  // keeps its memory; what it draws does not depend on it
  std::optional<Observe> observe_;
};

class AttentionSubject : public AnsweredSubject {
 public:
  using AnsweredSubject::AnsweredSubject;

  CaseEntry Draw(int64_t index) const override {
    Generator random(seed_, "fuzz attention", static_cast<uint64_t>(index));
    const DrawnAttention drawn = DrawAttention(random.Bits(), {});
    CaseEntry entry;
    entry.c = drawn.c;
    entry.plan = Print(drawn.plan);
    entry.profile = Print(drawn.profile);
    return entry;
  }
};

class CodecSubject : public AnsweredSubject {
 public:
  CodecSubject(Answerer answerer, const DrawSettings& settings)
      : AnsweredSubject(std::move(answerer), settings.seed) {
    const std::vector<Glob> globs = ParseGlobs(settings.formats);
    for (const KvFormat& format : AllKvFormats()) {
      if (globs.empty() || MatchesAny(globs, Print(format))) formats_.push_back(format);
    }
    if (formats_.empty()) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("no format matches {}", fmt::join(settings.formats, ", ")),
                  "--format");
    }
  }

  CaseEntry Draw(int64_t index) const override {
    Generator random(seed_, "fuzz codec", static_cast<uint64_t>(index));
    const auto below = [&](size_t n) { return static_cast<size_t>(random.Below(n)); };
    CodecCase c;
    c.direction = static_cast<CodecDirection>(below(3));
    c.format = formats_[below(formats_.size())];
    constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                DType::kFloat64};
    c.x = kTypes[below(std::size(kTypes))];
    c.rows =
        below(4) == 0 ? 1 + static_cast<int64_t>(below(40)) : 1 + static_cast<int64_t>(below(4));
    const auto* affine = std::get_if<AffineFormat>(&c.format);
    const auto groups = 1 + static_cast<int64_t>(below(affine == nullptr ? 130 : 5));
    c.head_dim = affine == nullptr ? groups : groups * affine->group_size;
    const auto regimes = RowRegimes();
    const bool decodes = c.direction == CodecDirection::kDecode;
    const size_t regime = below(regimes.size() + (decodes ? 3 : 0));
    c.data.regime = regime < regimes.size() ? std::string(regimes[regime]) : "codes";
    c.data.seed = below(1'000'000);
    CaseEntry entry;
    entry.c = std::move(c);
    return entry;
  }

 private:
  std::vector<KvFormat> formats_;
};

}  // namespace

std::unique_ptr<Subject> MakeSubject(const Answerer& answerer, const DrawSettings& settings) {
  const auto refuse = [&](const std::vector<std::string>& globs, const char* option) {
    if (globs.empty()) return;
    throw Error(ErrorCode::kUsage, fmt::format("cases of {} are not drawn by it", answerer.kind),
                option);
  };
  if (answerer.kind == "cache") return std::make_unique<CacheSubject>(answerer, settings);
  if (settings.observe) {
    throw Error(ErrorCode::kUsage, fmt::format("cases of {} have no states", answerer.kind),
                "--observe");
  }
  refuse(settings.layouts, "--layout");
  if (answerer.kind == "codec") return std::make_unique<CodecSubject>(answerer, settings);
  refuse(settings.formats, "--format");
  return std::make_unique<AttentionSubject>(answerer, settings.seed);
}

}  // namespace kvcheck
