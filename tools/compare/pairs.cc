#include "tools/compare/pairs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <initializer_list>
#include <map>
#include <string_view>
#include <utility>

#include "reference/formats/stored_codec_source.h"
#include "reference/judge/tensor_source.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"
#include "tools/compare/cast_source.h"
#include "tools/compare/triplets.h"
#include "tools/corridor/stored_tensors.h"

namespace kvcheck {
namespace {

const ObjectRecord& RecordOf(const TensorSource& file, const std::string& path) {
  return file.index().objects.at(path);
}

int64_t BytesOf(const ObjectRecord& record) {
  return record.shape.ElementCount() * static_cast<int64_t>(SizeInBytes(record.dtype));
}

// Axis names of either tensor: GOLD's, or where it has none at all, GOT's.
Shape Named(Shape shape, const Shape& other) {
  for (const Axis& axis : shape.axes) {
    if (!axis.name.empty()) return shape;
  }
  for (size_t a = 0; a < shape.axes.size(); ++a) shape.axes[a].name = other.axes[a].name;
  return shape;
}

// The datasets of these names, wherever in a file: "q, k".
std::string Present(const TensorSource& file, std::initializer_list<std::string_view> names) {
  std::vector<std::string_view> present;
  for (const std::string_view name : names) {
    const std::string ending = "/" + std::string(name);
    for (const auto& [path, record] : file.index().objects) {
      if (!record.is_dataset || !path.ends_with(ending)) continue;
      present.push_back(name);
      break;
    }
  }
  return fmt::format("{}", fmt::join(present, ", "));
}

// A bound follows from a case, its inputs and a plan; of these, files without the schema say none.
std::string WhatABoundNeeds(const TensorSource& gold, const TensorSource& got) {
  std::string inputs;
  for (const TensorSource* file : {&gold, &got}) {
    const std::string present = Present(*file, {"q", "k", "v", "x"});
    if (present.empty()) continue;
    inputs += fmt::format("{}{} of {}", inputs.empty() ? "" : " or ", present, file->path());
  }
  return fmt::format(
      "neither file says which case it answers. It takes the case (--case 'attention ...' with the "
      "one file that has inputs and outputs, and --gold-plan where GOLD has been computed too), "
      "its "
      "inputs ({}), and how they were computed (--plan; without it that of a stranger)",
      inputs.empty() ? "no dataset q, k, v or x is in either file; data=REGIME:SEED in the case "
                       "generates them"
                     : inputs);
}

// What forbids a comparison before anything is read; kComparable when nothing does.
std::pair<PairStanding, std::string> StandingOf(const TensorPair& names, const TensorRule& rule,
                                                const TensorSource& gold, const TensorSource& got) {
  if (names.got.empty() && names.triplet.empty()) {
    return {PairStanding::kMissing,
            fmt::format(
                "missing: {} has it, {} has not{}", gold.path(), got.path(),
                names.lacks.empty() ? TripletHint(got.index(), names.name) : "; " + names.lacks)};
  }
  if (!names.in_gold && names.says && StatedByRule(rule.tolerance, *names.says)) {
    return {PairStanding::kComparable, ""};
  }
  if (!names.in_gold) {
    return {PairStanding::kExtra,
            fmt::format("extra: {} has it{}, {} has not", got.path(),
                        names.got == names.name ? "" : " as " + names.got, gold.path())};
  }
  // Left out in silence it would count as compared; what else is in the file may still pass.
  std::vector<std::pair<const TensorSource*, const std::string*>> parts = {{&gold, &names.name}};
  if (!names.got.empty()) parts.emplace_back(&got, &names.got);
  for (const std::string& part : names.triplet) parts.emplace_back(&got, &part);
  for (const auto& [file, path] : parts) {
    const std::string& problem = RecordOf(*file, *path).problem;
    if (problem.empty()) continue;
    return {PairStanding::kUnreadable, fmt::format("not compared: {} cannot be read from {}: {}",
                                                   *path, file->path(), problem)};
  }
  if (!names.triplet.empty()) return {PairStanding::kComparable, ""};
  const ObjectRecord& want = RecordOf(gold, names.name);
  const ObjectRecord& have = RecordOf(got, names.got);
  if (!names.lacks.empty()) {
    return {PairStanding::kUnlike, fmt::format("has type {}, which no dequantised tensor has; {}",
                                               Name(have.dtype), names.lacks)};
  }
  if (!have.shape.SameExtents(want.shape)) {
    return {PairStanding::kUnlike,
            fmt::format("has shape {}, {} expected", ToString(have.shape), ToString(want.shape))};
  }
  // A codec rule judges a dequantised tensor of any real type.
  const bool is_codec = std::holds_alternative<CodecRule>(rule.tolerance);
  if (have.dtype != want.dtype && !rule.cast && !is_codec) {
    return {PairStanding::kUnlike,
            fmt::format("has type {}, {} expected (--cast TYPE compares in a type that holds both)",
                        Name(have.dtype), Name(want.dtype))};
  }
  return {PairStanding::kComparable, ""};
}

}  // namespace

std::vector<ComparePair> PlanPairs(std::vector<TensorPair> selected, const TensorSource& gold,
                                   const TensorSource& got, const RuleSet& rules,
                                   const std::vector<AxisSlice>& slices) {
  std::vector<ComparePair> pairs;
  pairs.reserve(selected.size());
  for (TensorPair& taken : selected) {
    ComparePair pair;
    pair.names = std::move(taken);
    const TensorPair& names = pair.names;
    pair.rule = rules.Of(names.name);
    if (std::holds_alternative<DerivedRule>(pair.rule.tolerance)) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("no bound can be derived for {}: {}", names.name, WhatABoundNeeds(gold, got)),
          pair.rule.where);
    }
    const auto* codec = std::get_if<CodecRule>(&pair.rule.tolerance);
    // A format keeps rows of numbers; what counts or indexes something is the same in both files.
    if (codec != nullptr && names.in_gold && !IsFloat(RecordOf(gold, names.name).dtype)) {
      pair.rule.tolerance = ExactRule{};
      codec = nullptr;
    }
    std::tie(pair.standing, pair.reason) = StandingOf(names, pair.rule, gold, got);
    if (pair.standing == PairStanding::kComparable && !names.triplet.empty()) {
      if (!slices.empty()) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("GOT has {} as codes, scales and biases, of which no part is taken",
                                names.name),
                    "--slice");
      }
      pair.elements = RecordOf(gold, names.name).shape.ElementCount();
      pair.bytes = BytesOf(RecordOf(gold, names.name));
      for (const std::string& part : names.triplet) pair.bytes += BytesOf(RecordOf(got, part));
    } else if (pair.standing == PairStanding::kComparable && !names.in_gold) {
      pair.stated = StatedByRule(pair.rule.tolerance, *names.says);
      pair.elements = 1;
      pair.bytes = BytesOf(RecordOf(got, names.got));
    } else if (pair.standing == PairStanding::kComparable) {
      const ObjectRecord& want = RecordOf(gold, names.name);
      const ObjectRecord& have = RecordOf(got, names.got);
      if (codec != nullptr && codec->format == KvFormat(PlainFormat{have.dtype}) &&
          SizeInBytes(have.dtype) == 1) {
        pair.cast_got = DType::kFloat32;  // which has every value of fp8
      }
      if (have.dtype != want.dtype && codec == nullptr) {
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
      if (const CodecRule* replaced = rules.Replaced(names.name);
          replaced != nullptr && IsFloat(want.dtype) && IsFloat(have.dtype)) {
        pair.replaced = *replaced;
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
                                        const std::string& path, const Shape& names,
                                        std::optional<DType> cast) {
  Views views;
  views.push_back(std::make_unique<FileTensor>(file.source, path, names, file.mutex));
  if (pair.part) views.push_back(std::make_unique<SlicedTensor>(*views.back(), *pair.part));
  if (cast) views.push_back(std::make_unique<CastTensor>(*views.back(), *cast, path));
  return views;
}

PairTensors::PairTensors(const ComparePair& pair, LockedFile& gold, LockedFile& got) {
  const Shape names = Named(DatasetRecord(gold.source, pair.names.name).shape,
                            DatasetRecord(got.source, pair.names.got).shape);
  gold_ = ViewsOf(pair, gold, pair.names.name, names, pair.cast);
  got_ = ViewsOf(pair, got, pair.names.got, names, pair.cast_got ? pair.cast_got : pair.cast);
}

namespace {

Verdict JudgeWhole(const ComparePair& pair, LockedFile& gold, LockedFile& got,
                   const JudgeCall& judge) {
  const PairTensors tensors(pair, gold, got);
  const SpecialPolicy special = pair.rule.Special();
  if (const auto* codec = std::get_if<CodecRule>(&pair.rule.tolerance)) {
    const std::unique_ptr<ExpectedSource> expected = MakeDequantisedSource(
        *codec, tensors.gold(), kTensorName, kTensorName, tensors.got().info().dtype);
    return judge(*expected, tensors.got(), special);
  }
  const RuledTensorSource expected(tensors.gold(), {{kTensorName, pair.rule.tolerance}});
  return judge(expected, tensors.got(), special);
}

// The planes of GOT, by their names.
class TripletSource : public ObservedSource {
 public:
  // planes: of the format, in the order of the names.
  TripletSource(const ComparePair& pair, LockedFile& got, const TripletNames& names,
                const Planes& planes) {
    for (size_t i = 0; i < pair.names.triplet.size(); ++i) {
      const std::string& path = pair.names.triplet[i];
      Part& part = parts_[names.planes[i]];
      part.tensor = std::make_unique<FileTensor>(got.source, path,
                                                 DatasetRecord(got.source, path).shape, got.mutex);
      part.info = part.tensor->info();
      part.info.name = names.planes[i];
      const TensorSpec plane = {planes[i].dtype, {}};
      part.info.dtype = MeantType(DatasetRecord(got.source, path), &plane);
      // Words of four bytes, the lowest first, as MLX's quantize returns them.
      const bool are_words = part.info.dtype == DType::kUInt32 &&
                             planes[i].dtype == DType::kUInt8 && pair.rule.cast == DType::kUInt8 &&
                             !part.info.shape.axes.empty();
      if (are_words) {
        part.elements_of_stored = 4;
        part.info.dtype = DType::kUInt8;
        part.info.shape.axes.back().extent *= part.elements_of_stored;
        part.info.row_length *= part.elements_of_stored;
      }
    }
  }
  const OutputInfo* Find(const std::string& name) const override {
    const auto found = parts_.find(name);
    return found == parts_.end() ? nullptr : &found->second.info;
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, part] : parts_) names.push_back(name);
    return names;
  }
  void Read(const std::string& name, int64_t first_element,
            std::span<std::byte> out) const override {
    const Part& part = parts_.at(name);
    // Whole rows are asked for, which are whole words.
    part.tensor->Read(kTensorName, first_element / part.elements_of_stored, out);
  }

 private:
  struct Part {
    std::unique_ptr<FileTensor> tensor;
    OutputInfo info;
    int64_t elements_of_stored = 1;  // elements of info in one that the file has
  };
  std::map<std::string, Part> parts_;
};

Verdict JudgeTriplet(const ComparePair& pair, LockedFile& gold, LockedFile& got,
                     const JudgeCall& judge) {
  const CodecRule& rule = std::get<CodecRule>(pair.rule.tolerance);
  const TripletNames names = {kTensorName, PlaneNames(rule.format)};
  const FileTensor original(gold.source, pair.names.name,
                            DatasetRecord(gold.source, pair.names.name).shape, gold.mutex);
  const KvFormat format = FormatOf(rule, original.info(), pair.names.name);
  const TripletSource observed(pair, got, names,
                               PlanesOf(format, original.info().shape.RowLength()));
  if (auto reason = TripletMismatch(format, original.info().shape, observed, names)) {
    return WithoutJudging(Outcome::kFail, *reason);
  }
  const TripletComparison both =
      MakeTripletComparison(rule, original, kTensorName, observed, names);
  return judge(*both.expected, *both.observed, pair.rule.Special());
}

// GOT's group size or bits against those of the rule.
Verdict JudgeStated(const ComparePair& pair, LockedFile& got, const JudgeCall& judge) {
  const ObjectRecord& record = DatasetRecord(got.source, pair.names.got);
  Tensor stated(record.dtype, record.shape);
  EncodeFrom(std::vector<double>{static_cast<double>(*pair.stated)}, record.dtype,
             stated.bytes.data());
  const MemorySink rule(TensorMap{{kTensorName, stated}});
  const RuledTensorSource expected(rule, {{kTensorName, ExactRule{}}});
  const FileTensor observed(got.source, pair.names.got, record.shape, got.mutex);
  Verdict verdict = judge(expected, observed, kTensorPolicy);
  for (OutputVerdict& output : verdict.outputs) {
    output.rule =
        fmt::format("the {} of {}", *pair.names.says == FormatField::kBits ? "bits" : "group size",
                    Print(pair.rule.tolerance));
  }
  return verdict;
}

}  // namespace

void AddRuleSource(const ComparePair& pair, OutputVerdict* output) {
  if (std::holds_alternative<ExactRule>(pair.rule.tolerance) || pair.rule.where.empty()) return;
  output->rule += fmt::format(" ({}{}{})", pair.rule.where, pair.rule.reason.empty() ? "" : ": ",
                              pair.rule.reason);
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
  Verdict verdict = pair.stated                  ? JudgeStated(pair, got, judge)
                    : pair.names.triplet.empty() ? JudgeWhole(pair, gold, got, judge)
                                                 : JudgeTriplet(pair, gold, got, judge);
  if (pair.elements == 0 && empty == EmptyPairs::kPass && verdict.outcome == Outcome::kMistrusted) {
    verdict.outcome = Outcome::kPass;
    verdict.reasons.clear();
    for (OutputVerdict& output : verdict.outputs) {
      output.outcome = Outcome::kPass;
      output.reasons.clear();
    }
  }
  for (OutputVerdict& output : verdict.outputs) AddRuleSource(pair, &output);
  return verdict;
}

}  // namespace kvcheck
