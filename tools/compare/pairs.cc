#include "tools/compare/pairs.h"

#include <fmt/format.h>

#include <utility>

#include "reference/judge/tensor_source.h"
#include "reference/spec/error.h"
#include "tools/compare/cast_source.h"

namespace kvcheck {
namespace {

const ObjectRecord& RecordOf(const TensorSource& file, const std::string& path) {
  return file.index().objects.at(path);
}

// Axis names of either tensor: GOLD's, or where it has none at all, GOT's.
Shape Named(Shape shape, const Shape& other) {
  for (const Axis& axis : shape.axes) {
    if (!axis.name.empty()) return shape;
  }
  for (size_t a = 0; a < shape.axes.size(); ++a) shape.axes[a].name = other.axes[a].name;
  return shape;
}

// What forbids a comparison before anything is read; kComparable when nothing does.
std::pair<PairStanding, std::string> StandingOf(const TensorPair& names, const TensorRule& rule,
                                                const TensorSource& gold, const TensorSource& got) {
  if (names.got.empty()) {
    return {PairStanding::kMissing,
            fmt::format("missing: {} has it, {} has not", gold.path(), got.path())};
  }
  if (!names.in_gold) {
    return {PairStanding::kExtra,
            fmt::format("extra: {} has it{}, {} has not", got.path(),
                        names.got == names.name ? "" : " as " + names.got, gold.path())};
  }
  // Left out in silence it would count as compared; what else is in the file may still pass.
  for (const auto& [file, path] : {std::pair{&gold, &names.name}, {&got, &names.got}}) {
    const std::string& problem = RecordOf(*file, *path).problem;
    if (problem.empty()) continue;
    return {PairStanding::kUnreadable, fmt::format("not compared: {} cannot be read from {}: {}",
                                                   *path, file->path(), problem)};
  }
  const ObjectRecord& want = RecordOf(gold, names.name);
  const ObjectRecord& have = RecordOf(got, names.got);
  if (!have.shape.SameExtents(want.shape)) {
    return {PairStanding::kUnlike,
            fmt::format("has shape {}, {} expected", ToString(have.shape), ToString(want.shape))};
  }
  if (have.dtype != want.dtype && !rule.cast) {
    return {PairStanding::kUnlike,
            fmt::format("has type {}, {} expected (--cast TYPE compares in a type that holds both)",
                        Name(have.dtype), Name(want.dtype))};
  }
  return {PairStanding::kComparable, ""};
}

}  // namespace

std::vector<ComparePair> PlanPairs(const Selection& selection, const TensorSource& gold,
                                   const TensorSource& got, const RuleSet& rules,
                                   const std::vector<AxisSlice>& slices) {
  std::vector<ComparePair> pairs;
  for (const TensorPair& names : selection.pairs) {
    ComparePair pair;
    pair.names = names;
    pair.rule = rules.Of(names.name);
    if (std::holds_alternative<DerivedRule>(pair.rule.tolerance)) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("no bound can be derived for {}: no case says how it was computed; "
                              "give a golden file as GOLD, or --case",
                              names.name),
                  pair.rule.where);
    }
    std::tie(pair.standing, pair.reason) = StandingOf(names, pair.rule, gold, got);
    if (pair.standing == PairStanding::kComparable) {
      const ObjectRecord& want = RecordOf(gold, names.name);
      const ObjectRecord& have = RecordOf(got, names.got);
      if (have.dtype != want.dtype) {
        pair.cast = pair.rule.cast;
        for (const DType own : {want.dtype, have.dtype}) {
          if (!HoldsEveryValue(*pair.cast, own)) {
            throw Error(ErrorCode::kUsage,
                        fmt::format("{} does not hold every value of {}: name a type that does",
                                    Name(*pair.cast), Name(own)),
                        fmt::format("cast of {}", names.name));
          }
        }
      }
      if (!slices.empty()) {
        pair.part = SliceShape(Named(want.shape, have.shape), slices, names.name);
      }
      pair.elements = (pair.part ? *pair.part : want.shape).ElementCount();
      pair.bytes =
          pair.elements * static_cast<int64_t>(SizeInBytes(want.dtype) + SizeInBytes(have.dtype));
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

PairTensors::Views PairTensors::ViewsOf(const ComparePair& pair, LockedFile& file,
                                        const std::string& path, const Shape& names) {
  Views views;
  views.push_back(std::make_unique<FileTensor>(file.source, path, names, file.mutex));
  if (pair.part) views.push_back(std::make_unique<SlicedTensor>(*views.back(), *pair.part));
  if (pair.cast) {
    views.push_back(std::make_unique<CastTensor>(*views.back(), *pair.cast, path));
  }
  return views;
}

PairTensors::PairTensors(const ComparePair& pair, LockedFile& gold, LockedFile& got) {
  const Shape names = Named(DatasetRecord(gold.source, pair.names.name).shape,
                            DatasetRecord(got.source, pair.names.got).shape);
  gold_ = ViewsOf(pair, gold, pair.names.name, names);
  got_ = ViewsOf(pair, got, pair.names.got, names);
}

EmptyPairs StandingOfEmpty(const std::vector<ComparePair>& pairs) {
  for (const ComparePair& pair : pairs) {
    if (pair.elements > 0) return EmptyPairs::kPass;
  }
  return EmptyPairs::kMistrusted;
}

Verdict JudgePair(const ComparePair& pair, LockedFile& gold, LockedFile& got, EmptyPairs empty,
                  const JudgeCall& judge) {
  switch (pair.standing) {
    case PairStanding::kMissing:
    case PairStanding::kExtra:
    case PairStanding::kUnlike:
      return WithoutJudging(Outcome::kFail, pair.reason);
    case PairStanding::kUnreadable:
      return WithoutJudging(Outcome::kMistrusted, pair.reason);
    case PairStanding::kComparable:
      break;
  }
  const PairTensors tensors(pair, gold, got);
  const RuledTensorSource expected(tensors.gold(), {{kTensorName, pair.rule.tolerance}});
  Verdict verdict = judge(expected, tensors.got(), pair.rule.Special());
  if (pair.elements == 0 && empty == EmptyPairs::kPass && verdict.outcome == Outcome::kMistrusted) {
    verdict.outcome = Outcome::kPass;
    verdict.reasons.clear();
    for (OutputVerdict& output : verdict.outputs) {
      output.outcome = Outcome::kPass;
      output.reasons.clear();
    }
  }
  if (!std::holds_alternative<ExactRule>(pair.rule.tolerance) && !pair.rule.where.empty()) {
    for (OutputVerdict& output : verdict.outputs) {
      output.rule += fmt::format(" ({}{}{})", pair.rule.where, pair.rule.reason.empty() ? "" : ": ",
                                 pair.rule.reason);
    }
  }
  return verdict;
}

}  // namespace kvcheck
