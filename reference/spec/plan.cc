#include "reference/spec/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/enum_text.h"
#include "reference/spec/error.h"
#include "reference/spec/known_plans.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

constexpr EnumNames<SumOrder, 5> kOrders = {{{SumOrder::kSequential, "sequential"},
                                             {SumOrder::kLanes, "lanes"},
                                             {SumOrder::kPairwise, "pairwise"},
                                             {SumOrder::kTensorCore, "tensor_core"},
                                             {SumOrder::kDepth, "depth"}}};
constexpr EnumNames<ExpForm, 5> kExpForms = {{{ExpForm::kExp, "exp"},
                                              {ExpForm::kExp2Scaled, "exp2_scaled"},
                                              {ExpForm::kExp2Log2, "exp2_log2"},
                                              {ExpForm::kExp2Fma, "exp2_fma"},
                                              {ExpForm::kExp2FmaDrift, "exp2_fma_drift"}}};
constexpr EnumNames<MergeKind, 4> kMerges = {{{MergeKind::kNone, "none"},
                                              {MergeKind::kAccumulators, "accumulators"},
                                              {MergeKind::kLse, "lse"},
                                              {MergeKind::kLseDivisionFree, "lse_division_free"}}};
constexpr EnumNames<DequantizeKind, 5> kDequantize = {{{DequantizeKind::kStored, "stored"},
                                                       {DequantizeKind::kInside, "inside"},
                                                       {DequantizeKind::kFactored, "factored"},
                                                       {DequantizeKind::kRounded, "rounded"},
                                                       {DequantizeKind::kRotated, "rotated"}}};
constexpr EnumNames<bool, 2> kYesNo = {{{true, "yes"}, {false, "no"}}};
constexpr EnumNames<bool, 2> kDenominator = {{{true, "rounded"}, {false, "unrounded"}}};
constexpr EnumNames<NormaliseKind, 3> kNormalise = {{{NormaliseKind::kDivide, "divide"},
                                                     {NormaliseKind::kReciprocal, "reciprocal"},
                                                     {NormaliseKind::kApproximate, "approximate"}}};
constexpr EnumNames<OperandType, 3> kOperandTypes = {
    {{OperandType::kTf32, "tf32"}, {OperandType::kBf16, "bf16"}, {OperandType::kF16, "f16"}}};
constexpr EnumNames<bool, 2> kSink = {{{true, "last"}, {false, "first"}}};

constexpr std::string_view kKeys =
    "base, name, qk, pv, l, op, scale_roundings, prescale, integer_qk, fixed_q, fixed_p, operands, "
    "scores, "
    "bias_roundings, tanh_error, exp, exp_error, exp_floor, lazy_rescale, block, sink, p, p_scale, "
    "p_normalised, l_from, merge, "
    "splits, log_error, partial, merge_weights, normalise, through, flush, saturate, dequantize";

// Large enough for any depth of practical kernels, small enough for exact integer arithmetic.
constexpr int kMaxCount = 1 << 30;

DType ParseFloatType(Piece piece) {
  const auto dtype = ParseDType(piece.text);
  // A scale type without a sign (f8e8m0fnu) holds no intermediate value.
  if (!dtype || !IsFloat(*dtype) || !FloatTypeOf(*dtype).is_signed) {
    piece.Refuse("expected a float type, as f32, f16 or bf16");
  }
  return *dtype;
}

RoundedType ParseRoundedType(Piece piece) {
  const std::vector<Piece> parts = Split(piece, '.');
  RoundedType type;
  type.dtype = ParseFloatType(parts[0]);
  if (parts.size() > 2 || (parts.size() == 2 && parts[1].text != "rz")) {
    piece.Refuse("a rounded type is written f32 (to nearest) or f32.rz (toward zero)");
  }
  type.toward_zero = parts.size() == 2;
  return type;
}

SumPlan ParseSum(Piece piece) {
  const std::vector<Piece> parts = Split(piece, ':');
  if (parts.size() < 2) piece.Refuse("a sum is written TYPE:ORDER[...], as f32:lanes:8:fma");
  SumPlan sum;
  sum.accumulator = ParseRoundedType(parts[0]);
  sum.order = ParseEnum(kOrders, parts[1]);
  size_t next = 2;
  const auto number = [&](const char* what, int lowest, int highest) {
    if (next >= parts.size()) piece.Refuse(fmt::format("{} is missing", what));
    return static_cast<int>(ParseInt(parts[next++], lowest, highest));
  };
  if (sum.order == SumOrder::kLanes) sum.width = number("the number of lanes", 1, kMaxCount);
  if (sum.order == SumOrder::kDepth) sum.width = number("the depth", 0, kMaxCount);
  if (sum.order == SumOrder::kTensorCore) {
    sum.width = number("the number of products per call", 1, kMaxCount);
    sum.aligned_bits = number("the number of aligned bits", 2, 52);
  }
  for (; next < parts.size(); ++next) {
    bool* flag = parts[next].text == "fma"       ? &sum.fma
                 : parts[next].text == "chained" ? &sum.chained
                                                 : nullptr;
    if (flag == nullptr || *flag) parts[next].Refuse("expected at most one 'fma', one 'chained'");
    *flag = true;
  }
  return sum;
}

OperandCut ParseCut(Piece piece) {
  constexpr std::string_view kForm =
      "operands are cut to TYPE[xPASSES][.rz], TYPE tf32, bf16 or f16, PASSES 3, 6 or 9: tf32, "
      "tf32.rz (toward zero), tf32x3";
  OperandCut cut;
  std::string_view text = piece.text;
  cut.toward_zero = text.ends_with(".rz");
  if (cut.toward_zero) text.remove_suffix(3);
  if (const size_t at = text.rfind('x'); at != std::string_view::npos) {
    const std::string_view passes = text.substr(at + 1);
    if (passes != "3" && passes != "6" && passes != "9") piece.Refuse(kForm);
    cut.passes = passes[0] - '0';
    text = text.substr(0, at);
  }
  for (const auto& [type, name] : kOperandTypes) {
    if (name != text) continue;
    cut.type = type;
    return cut;
  }
  piece.Refuse(kForm);
}

// "none", one cut for all operands, or "qk:CUT,pv:CUT", of which one may be left out.
void ParseOperands(Piece piece, Plan* plan) {
  plan->qk_operands.reset();
  plan->pv_operands.reset();
  if (piece.text == "none") return;
  if (piece.text.find(':') == std::string_view::npos) {
    plan->qk_operands = plan->pv_operands = ParseCut(piece);
    return;
  }
  for (const Piece& part : Split(piece, ',')) {
    const std::vector<Piece> words = Split(part, ':');
    std::optional<OperandCut>* cut = words[0].text == "qk"   ? &plan->qk_operands
                                     : words[0].text == "pv" ? &plan->pv_operands
                                                             : nullptr;
    if (words.size() != 2 || cut == nullptr || cut->has_value()) {
      part.Refuse("operands is written none, CUT or qk:CUT,pv:CUT, as operands=tf32");
    }
    *cut = ParseCut(words[1]);
  }
}

std::string PrintOperands(const Plan& plan) {
  if (plan.qk_operands == plan.pv_operands) return Print(*plan.qk_operands);
  std::string text;
  if (plan.qk_operands) text = "qk:" + Print(*plan.qk_operands);
  if (plan.pv_operands) text += (text.empty() ? "pv:" : ",pv:") + Print(*plan.pv_operands);
  return text;
}

bool IsPlanName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](char c) { return c > 0x20 && c <= 0x7e && c != '='; });
}

std::vector<std::string> PlanNames() {
  std::vector<std::string> names;
  for (const KnownPlan& plan : KnownPlans()) names.emplace_back(plan.name);
  return names;
}

[[noreturn]] void RefuseName(const Piece& name) {
  name.Refuse(fmt::format("'{}' is not a known plan{}; `kvcheck plans` prints them", name.text,
                          DidYouMean(name.text, PlanNames())));
}

// A plan's name in place of the first field, without base=: the name, or nothing.
std::optional<Piece> BareName(const Piece& line) {
  const size_t end = std::min(line.text.find_first_of(" \t\r\n"), line.text.size());
  const Piece first = {line.text.substr(0, end), line.whole};
  if (first.text.empty() || first.text.find('=') != std::string_view::npos) return std::nullopt;
  if (FindKnownPlan(first.text) != nullptr) return first;
  const bool is_all = first.text.size() == line.text.size();
  if (is_all || !NearestName(first.text, PlanNames()).empty()) RefuseName(first);
  return std::nullopt;
}

// Whether `dequantize` says how often a value is rounded.
bool SaysRoundings(DequantizeKind kind) {
  return kind == DequantizeKind::kInside || kind == DequantizeKind::kRotated;
}

double ParseError(Piece piece) {
  const double error = ParseReal(piece);
  if (!(error >= 0 && error < 1)) piece.Refuse("an error is at least 0 and below 1");
  return error;
}

}  // namespace

std::vector<std::string> PlanKeys() { return ListedNames(kKeys); }

std::string_view Name(SumOrder order) { return NameIn(kOrders, order); }
std::string_view Name(ExpForm form) { return NameIn(kExpForms, form); }
std::string_view Name(MergeKind kind) { return NameIn(kMerges, kind); }
std::string_view Name(NormaliseKind kind) { return NameIn(kNormalise, kind); }
std::string_view Name(DequantizeKind kind) { return NameIn(kDequantize, kind); }

std::string Print(const RoundedType& type) {
  return fmt::format("{}{}", ShortName(type.dtype), type.toward_zero ? ".rz" : "");
}

std::string Print(const OperandCut& cut) {
  return fmt::format("{}{}{}", NameIn(kOperandTypes, cut.type),
                     cut.passes > 1 ? fmt::format("x{}", cut.passes) : "",
                     cut.toward_zero ? ".rz" : "");
}

std::string Print(const SumPlan& sum) {
  const bool has_width = sum.order == SumOrder::kLanes || sum.order == SumOrder::kDepth ||
                         sum.order == SumOrder::kTensorCore;
  std::string text = fmt::format("{}:{}", Print(sum.accumulator), Name(sum.order));
  if (has_width) text += fmt::format(":{}", sum.width);
  if (sum.order == SumOrder::kTensorCore) text += fmt::format(":{}", sum.aligned_bits);
  if (sum.fma) text += ":fma";
  if (sum.chained) text += ":chained";
  return text;
}

std::string Print(const Plan& plan) {
  KVCHECK_CHECK(plan.prescale_roundings.value_or(0) == 0 || plan.prescale_dtype,
                "prescale says its roundings without its type");
  KVCHECK_CHECK(!plan.dequantize || !SaysRoundings(*plan.dequantize) || plan.dequantize_roundings,
                "dequantize=inside or rotated without its roundings");
  KVCHECK_CHECK(plan.dequantize != DequantizeKind::kRounded || plan.dequantize_dtype,
                "dequantize=rounded without its type");
  std::string text;
  const auto add = [&](std::string_view key, std::string_view value) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{}={}", key, value);
  };
  const auto add_bool = [&](std::string_view key, const std::optional<bool>& value,
                            const EnumNames<bool, 2>& names) {
    if (value) add(key, NameIn(names, *value));
  };
  const auto add_int = [&](std::string_view key, const std::optional<int>& value) {
    if (value) add(key, fmt::format("{}", *value));
  };
  const auto add_real = [&](std::string_view key, const std::optional<double>& value) {
    if (value) add(key, PrintReal(*value));
  };
  const auto add_type = [&](std::string_view key, const std::optional<DType>& value) {
    if (value) add(key, ShortName(*value));
  };
  if (!plan.name.empty()) {
    if (!IsPlanName(plan.name)) {
      throw Error(
          ErrorCode::kUsage,
          "a plan's name is printable ASCII without spaces and '=', so that its text parses "
          "back; rename the plan");
    }
    add("name", plan.name);
  }
  if (plan.qk) add("qk", Print(*plan.qk));
  if (plan.pv) add("pv", Print(*plan.pv));
  if (plan.l) add("l", Print(*plan.l));
  if (plan.op) add("op", Print(*plan.op));
  add_int("scale_roundings", plan.scale_roundings);
  if (plan.prescale_roundings) {
    add("prescale",
        *plan.prescale_roundings == 0
            ? std::string("none")
            : fmt::format("{}:{}", ShortName(*plan.prescale_dtype), *plan.prescale_roundings));
  }
  if (plan.integer_qk) add("integer_qk", Print(*plan.integer_qk));
  add_real("fixed_q", plan.fixed_q);
  add_real("fixed_p", plan.fixed_p);
  if (plan.qk_operands || plan.pv_operands) add("operands", PrintOperands(plan));
  add_type("scores", plan.scores);
  add_int("bias_roundings", plan.bias_roundings);
  add_real("tanh_error", plan.tanh_error);
  if (plan.exp) add("exp", Name(*plan.exp));
  add_real("exp_error", plan.exp_error);
  add_real("exp_floor", plan.exp_floor);
  add_real("lazy_rescale", plan.lazy_rescale);
  if (plan.block) add("block", *plan.block == 0 ? "all" : fmt::format("{}", *plan.block));
  add_bool("sink", plan.late_sink, kSink);
  add_type("p", plan.p);
  add_real("p_scale", plan.p_scale);
  add_bool("p_normalised", plan.p_normalised, kYesNo);
  add_bool("l_from", plan.l_from_rounded_p, kDenominator);
  if (plan.merge) add("merge", Name(*plan.merge));
  add_int("splits", plan.splits);
  add_real("log_error", plan.log_error);
  add_type("partial", plan.partial);
  add_type("merge_weights", plan.merge_weights);
  if (plan.normalise) add("normalise", Name(*plan.normalise));
  add_type("through", plan.through);
  add_bool("flush", plan.flush_subnormals, kYesNo);
  add_bool("saturate", plan.saturate_output, kYesNo);
  if (plan.dequantize) {
    switch (*plan.dequantize) {
      case DequantizeKind::kInside:
      case DequantizeKind::kRotated:
        add("dequantize", fmt::format("{}:{}", Name(*plan.dequantize), *plan.dequantize_roundings));
        break;
      case DequantizeKind::kRounded:
        add("dequantize", fmt::format("rounded:{}", ShortName(*plan.dequantize_dtype)));
        break;
      default:
        add("dequantize", Name(*plan.dequantize));
    }
  }
  return text;
}

Plan ParsePlan(std::string_view text) {
  Piece line = WholeLine(text);
  const std::optional<Piece> bare = BareName(line);
  if (bare) line.text.remove_prefix(std::min(bare->text.size() + 1, line.text.size()));
  Fields fields(line, kKeys);
  Plan plan;
  Piece value;
  const bool has_base = fields.TakeIf("base", &value);
  if (bare && has_base) value.Refuse("the plan is named before");
  if (bare) value = *bare;
  if (bare || has_base) {
    const KnownPlan* known = FindKnownPlan(value.text);
    if (known == nullptr) RefuseName(value);
    plan = ParsePlan(known->text);
    plan.name = std::string(known->name);
  }
  const auto take_int = [&](std::string_view key, std::optional<int>* field, int lowest) {
    if (fields.TakeIf(key, &value)) *field = static_cast<int>(ParseInt(value, lowest, kMaxCount));
  };
  const auto take_error = [&](std::string_view key, std::optional<double>* field) {
    if (fields.TakeIf(key, &value)) *field = ParseError(value);
  };
  const auto take_type = [&](std::string_view key, std::optional<DType>* field) {
    if (fields.TakeIf(key, &value)) *field = ParseFloatType(value);
  };
  const auto take_bool = [&](std::string_view key, std::optional<bool>* field,
                             const EnumNames<bool, 2>& names) {
    if (fields.TakeIf(key, &value)) *field = ParseEnum(names, value);
  };
  if (fields.TakeIf("name", &value)) {
    if (!IsPlanName(value.text)) value.Refuse("a plan's name is printable, without '='");
    plan.name = std::string(value.text);
  }
  if (fields.TakeIf("qk", &value)) plan.qk = ParseSum(value);
  if (fields.TakeIf("pv", &value)) plan.pv = ParseSum(value);
  if (fields.TakeIf("l", &value)) plan.l = ParseSum(value);
  if (fields.TakeIf("op", &value)) plan.op = ParseRoundedType(value);
  take_int("scale_roundings", &plan.scale_roundings, 0);
  if (fields.TakeIf("prescale", &value)) {
    if (value.text == "none") {
      plan.prescale_roundings = 0;
      plan.prescale_dtype.reset();
    } else {
      const std::vector<Piece> parts = Split(value, ':');
      if (parts.size() != 2) value.Refuse("prescale is written none or TYPE:ROUNDINGS");
      plan.prescale_dtype = ParseFloatType(parts[0]);
      plan.prescale_roundings = static_cast<int>(ParseInt(parts[1], 1, 8));
    }
  }
  if (fields.TakeIf("integer_qk", &value)) {
    plan.integer_qk.reset();
    if (value.text != "none") plan.integer_qk = ParseKvFormat(value);
  }
  const auto take_fixed = [&](std::string_view key, std::optional<double>* field) {
    if (!fields.TakeIf(key, &value)) return;
    field->reset();
    if (value.text != "none") *field = ParseError(value);
  };
  take_fixed("fixed_q", &plan.fixed_q);
  take_fixed("fixed_p", &plan.fixed_p);
  if (fields.TakeIf("operands", &value)) ParseOperands(value, &plan);
  take_type("scores", &plan.scores);
  take_int("bias_roundings", &plan.bias_roundings, 0);
  take_error("tanh_error", &plan.tanh_error);
  if (fields.TakeIf("exp", &value)) plan.exp = ParseEnum(kExpForms, value);
  take_error("exp_error", &plan.exp_error);
  take_error("exp_floor", &plan.exp_floor);
  if (fields.TakeIf("lazy_rescale", &value)) {
    plan.lazy_rescale = ParseReal(value);
    if (*plan.lazy_rescale < 0) value.Refuse("lazy_rescale is at least 0");
  }
  if (fields.TakeIf("block", &value)) {
    plan.block = value.text == "all" ? 0 : static_cast<int>(ParseInt(value, 1, kMaxCount));
  }
  take_bool("sink", &plan.late_sink, kSink);
  take_type("p", &plan.p);
  if (fields.TakeIf("p_scale", &value)) {
    plan.p_scale = ParseReal(value);
    if (!(*plan.p_scale > 0)) value.Refuse("p_scale is positive");
  }
  take_bool("p_normalised", &plan.p_normalised, kYesNo);
  take_bool("l_from", &plan.l_from_rounded_p, kDenominator);
  if (fields.TakeIf("merge", &value)) plan.merge = ParseEnum(kMerges, value);
  take_int("splits", &plan.splits, 1);
  take_error("log_error", &plan.log_error);
  take_type("partial", &plan.partial);
  take_type("merge_weights", &plan.merge_weights);
  if (fields.TakeIf("normalise", &value)) plan.normalise = ParseEnum(kNormalise, value);
  if (fields.TakeIf("through", &value)) {
    plan.through.reset();
    if (value.text != "none") plan.through = ParseFloatType(value);
  }
  take_bool("flush", &plan.flush_subnormals, kYesNo);
  take_bool("saturate", &plan.saturate_output, kYesNo);
  if (fields.TakeIf("dequantize", &value)) {
    const std::vector<Piece> parts = Split(value, ':');
    plan.dequantize = ParseEnum(kDequantize, parts[0]);
    plan.dequantize_roundings.reset();
    plan.dequantize_dtype.reset();
    const bool takes_argument =
        SaysRoundings(*plan.dequantize) || *plan.dequantize == DequantizeKind::kRounded;
    if (parts.size() != (takes_argument ? 2u : 1u)) {
      value.Refuse(
          "dequantize is stored, inside:ROUNDINGS, factored, rounded:TYPE or rotated:ROUNDINGS");
    }
    if (SaysRoundings(*plan.dequantize)) {
      // Codecs that divide by a norm of their codes round as often as there are channels.
      const bool rotates = *plan.dequantize == DequantizeKind::kRotated;
      plan.dequantize_roundings = static_cast<int>(ParseInt(parts[1], 0, rotates ? 1024 : 8));
    }
    if (*plan.dequantize == DequantizeKind::kRounded) {
      plan.dequantize_dtype = ParseFloatType(parts[1]);
    }
  }
  fields.Finish();
  return plan;
}

}  // namespace kvcheck
