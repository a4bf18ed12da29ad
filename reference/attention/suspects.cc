#include "reference/attention/suspects.h"

#include <fmt/format.h>

#include <utility>

#include "reference/attention/operand_cut.h"
#include "reference/formats/codec.h"
#include "reference/spec/error.h"
#include "reference/spec/text.h"

namespace kvcheck {

namespace {

std::string CutText(const OperandCut& cut) {
  const char* type = cut.type == OperandType::kTf32   ? "TF32"
                     : cut.type == OperandType::kBf16 ? "bf16"
                                                      : "f16";
  if (cut.passes == 1) {
    return fmt::format("{} to {}", cut.toward_zero ? "cut" : "rounded", type);
  }
  return fmt::format("split into {} parts, {} products each", type, cut.passes);
}

// "tf32", "qk:tf32,pv:bf16", "none".
std::string OperandsValue(const Plan& plan) {
  if (!plan.qk_operands && !plan.pv_operands) return "none";
  if (plan.qk_operands == plan.pv_operands) return Print(*plan.qk_operands);
  std::string text;
  if (plan.qk_operands) text = "qk:" + Print(*plan.qk_operands);
  if (plan.pv_operands) text += (text.empty() ? "pv:" : ",pv:") + Print(*plan.pv_operands);
  return text;
}

std::string OperandsMeaning(const Plan& plan) {
  if (plan.qk_operands == plan.pv_operands) {
    return "operands of q.k and P.V were " + CutText(*plan.qk_operands);
  }
  std::string text;
  for (const auto& [cut, product] :
       {std::pair{plan.qk_operands, "q.k"}, std::pair{plan.pv_operands, "P.V"}}) {
    if (!cut) continue;
    text += fmt::format("{}operands of {} were {}", text.empty() ? "" : " and ", product,
                        CutText(*cut));
  }
  return text;
}

DeclaredChange ChangeOf(std::string_view word, std::string_view former, std::string_view value,
                        std::string meaning) {
  return {false,
          {{std::string(word), std::string(former), std::string(value), std::move(meaning)}}};
}

// What a kernel does that stores one of these in a type, but for the type.
std::string_view StoredMeaning(std::string_view word) {
  if (word == "p") return "P were rounded to";
  if (word == "scores") return "scores were stored in";
  KVCHECK_CHECK(word == "partial", "a stored type without a meaning");
  return "partial results of ranges of keys were stored in";
}

// Tensor cores and matrix units by their likelihood: TF32, which is the default of much that is f32
// in name, of either product or of both; bf16; three products for one. Operands of 11 bits and less
// are what they are in TF32. add: takes a plan and what of it changed.
template <typename Add>
void AddOperands(const Plan& declared, const Plan& plan, const AttentionCase& c, const Add& add) {
  const bool has_values = !plan.integer_qk && !plan.fixed_q && !plan.fixed_p &&
                          *plan.dequantize != DequantizeKind::kFactored &&
                          *plan.dequantize != DequantizeKind::kRotated;
  if (!has_values || c.q != DType::kFloat32 || plan.op->dtype != DType::kFloat32) return;
  const auto add_cut = [&](bool of_qk, bool of_pv, const OperandCut& cut) {
    // What is said already of a coarser cut, or of more passes, explains no more.
    const auto says_more = [&](const std::optional<OperandCut>& said) {
      return !said ||
             (said->passes == 1 && cut.passes == 1 ? UnitRoundoff(*said) < UnitRoundoff(cut)
                                                   : said->passes > cut.passes);
    };
    Plan changed = declared;
    if (of_qk && says_more(plan.qk_operands)) changed.qk_operands = cut;
    if (of_pv && says_more(plan.pv_operands)) changed.pv_operands = cut;
    if (!changed.qk_operands && !changed.pv_operands) return;
    add(changed, ChangeOf("operands", OperandsValue(plan), OperandsValue(changed),
                          OperandsMeaning(changed)));
  };
  constexpr OperandCut kTf32 = {OperandType::kTf32, 1, true};
  add_cut(true, true, kTf32);
  add_cut(true, false, kTf32);
  add_cut(false, true, kTf32);
  add_cut(true, true, {OperandType::kBf16, 1, false});
  add_cut(true, true, {OperandType::kTf32, 3, true});
  add_cut(true, true, {OperandType::kBf16, 3, false});
}

}  // namespace

std::vector<Suspect> Suspects(const Plan& declared, const Plan& plan, const Profile& profile,
                              const AttentionCase& c) {
  std::vector<Suspect> suspects;
  const auto add = [&](Plan changed, DeclaredChange change) {
    if (changed == declared) return;
    suspects.push_back({std::move(changed), std::move(change)});
  };
  const auto add_type = [&](std::optional<DType> Plan::* field, std::string_view key, DType type) {
    Plan changed = declared;
    if (UnitRoundoff(type) <= UnitRoundoff(*(plan.*field))) return;
    changed.*field = type;
    add(changed, ChangeOf(key, ShortName(*(plan.*field)), ShortName(type),
                          fmt::format("{} {}", StoredMeaning(key), ShortName(type))));
  };
  // Seen in the outputs themselves, and so before all that would merely make the bound as large.
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    const DType before = plan.through.value_or(c.out);
    if (UnitRoundoff(type) <= UnitRoundoff(before) || c.out == DType::kFloat64) continue;
    Plan changed = declared;
    changed.through = type;
    suspects.push_back(
        {std::move(changed),
         ChangeOf(
             "through", plan.through ? ShortName(*plan.through) : std::string_view("none"),
             ShortName(type),
             fmt::format("outputs were rounded before they are stored, to {}", ShortName(type))),
         type});
  }
  for (double error : {0x1p-21, 0x1p-18}) {
    if (error <= *plan.exp_error) continue;
    Plan changed = declared;
    changed.exp_error = error;
    add(changed, ChangeOf("exp_error", PrintReal(*plan.exp_error), PrintReal(error),
                          fmt::format("exp erred by {} of its value", PrintReal(error))));
  }
  for (DType type : {DType::kFloat16, DType::kBFloat16}) add_type(&Plan::p, "p", type);
  const bool rotates = BasisOf(c.k, c.k_dim).Rotates() || BasisOf(c.v, c.v_dim).Rotates();
  if (rotates && *plan.dequantize != DequantizeKind::kRotated && !plan.integer_qk &&
      profile.decode == DecodeRounding::kExact) {
    Plan changed = declared;
    changed.dequantize = DequantizeKind::kRotated;
    changed.dequantize_roundings = 2;
    add(changed, ChangeOf("dequantize", Name(*plan.dequantize), "rotated:2",
                          "rows stayed in the basis in which they are stored"));
  }
  AddOperands(declared, plan, c, add);
  for (DType type : {DType::kFloat16, DType::kBFloat16}) {
    add_type(&Plan::scores, "scores", type);
    Plan changed = declared;
    // Not beside integers, whose error is that of the query as it comes.
    if (*plan.prescale_roundings == 0 && !plan.integer_qk && !plan.fixed_q) {
      changed.prescale_roundings = 1;
      changed.prescale_dtype = type;
      add(changed,
          ChangeOf("prescale", "none", fmt::format("{}:1", ShortName(type)),
                   fmt::format("q were multiplied by the scale and rounded before q.k, to {}",
                               ShortName(type))));
    }
    if (*plan.merge != MergeKind::kNone) {
      add_type(&Plan::partial, "partial", type);
      if (UnitRoundoff(type) > UnitRoundoff(plan.merge_weights.value_or(plan.op->dtype))) {
        Plan merged = declared;
        merged.merge_weights = type;
        add(merged,
            ChangeOf(
                "merge_weights", ShortName(plan.merge_weights.value_or(plan.op->dtype)),
                ShortName(type),
                fmt::format("the weights of partial results were stored in {}", ShortName(type))));
      }
    }
  }
  // A query of 8 bits and a sign, and one of three such bytes; likewise weights.
  const bool factored =
      *plan.dequantize == DequantizeKind::kFactored && profile.decode == DecodeRounding::kExact;
  for (const double error : {0x1p-23, 0x1p-8}) {
    const auto add_fixed = [&](std::optional<double> Plan::* field, std::string_view key,
                               std::string meaning) {
      if (plan.*field && error <= *(plan.*field)) return;
      Plan changed = declared;
      changed.*field = error;
      add(changed, ChangeOf(key, plan.*field ? PrintReal(*(plan.*field)) : std::string("none"),
                            PrintReal(error), std::move(meaning)));
    };
    const bool integers = plan.integer_qk || *plan.prescale_roundings > 0;
    if (factored && GridOf(c.k) && !integers) {
      add_fixed(&Plan::fixed_q, "fixed_q", "queries met the codes of K as integers times a step");
    }
    if (factored && GridOf(c.v)) {
      add_fixed(&Plan::fixed_p, "fixed_p", "weights met the codes of V as integers times a step");
    }
  }
  // Only what makes a bound larger is advised: the type of a sum, and truncation.
  const auto add_sum = [&](std::optional<SumPlan> Plan::* field, std::string_view key,
                           std::string_view what, SumPlan sum) {
    Plan changed = declared;
    changed.*field = sum;
    add(changed, ChangeOf(key, Print(*(plan.*field)), Print(sum),
                          sum.accumulator.toward_zero
                              ? fmt::format("{} were summed toward zero", what)
                              : fmt::format("{} were summed in {}, one term after the other", what,
                                            ShortName(sum.accumulator.dtype))));
  };
  struct Sum {
    std::optional<SumPlan> Plan::* field;
    std::string_view key;
    std::string_view what;
  };
  for (const auto& [field, key, what] : {Sum{&Plan::pv, "pv", "P.V"}, Sum{&Plan::qk, "qk", "q.k"},
                                         Sum{&Plan::l, "l", "terms of the denominator"}}) {
    SumPlan sum = *(plan.*field);
    if (sum.order != SumOrder::kTensorCore && !sum.accumulator.toward_zero) {
      sum.accumulator.toward_zero = true;
      add_sum(field, key, what, sum);
    }
    for (DType type : {DType::kFloat16, DType::kBFloat16}) {
      if (c.q == DType::kFloat64 || UnitRoundoff(type) <= UnitRoundoff(sum.accumulator.dtype))
        continue;
      SumPlan low;
      low.accumulator = {type, false};
      add_sum(field, key, what, low);
    }
  }
  return suspects;
}

}  // namespace kvcheck
