#include "reference/attention/simulated_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention/simulated_row.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using simulated::Entry;
using simulated::Op;
using simulated::Partial;
using simulated::RowKernel;

// One operand of one head as the kernel multiplies it: rows of `stride` doubles.
struct OperandView {
  std::vector<double> rows;
  size_t stride = 0;
  size_t group = 0;   // of factored codes
  StoredBasis basis;  // in which the rows are; without blocks: not rotated
  const double* Row(int64_t key) const { return &rows[static_cast<size_t>(key) * stride]; }
};

OperandView ViewOperand(const Plan& plan, const Profile& profile, const AttentionCase& c,
                        const TensorMap& inputs, bool is_key, int64_t batch, int64_t kv_head) {
  const KvFormat& format = is_key ? c.k : c.v;
  const auto d = static_cast<size_t>(is_key ? c.k_dim : c.v_dim);
  OperandView view;
  view.stride = d;
  if (*plan.dequantize == DequantizeKind::kRotated) {
    view.basis = BasisOf(format, static_cast<int64_t>(d));
    if (view.basis.Rotates()) {
      view.rows = DecodeRowsInBasis(format, profile, CacheRows(format, inputs, is_key ? "k" : "v"),
                                    (batch * c.kv_heads + kv_head) * c.kv_len, c.kv_len);
      const Op op(plan);
      for (double& value : view.rows) value = op.Mul(value, 1);
      return view;
    }
  }
  const bool integers = is_key && plan.integer_qk;
  const bool dequantized = GridOf(format) || Leaves(format, CodecChoice::kDecode);
  if (!integers && (!dequantized || profile.decode != DecodeRounding::kExact ||
                    *plan.dequantize == DequantizeKind::kStored)) {
    AttentionCase stored = c;  // a kernel never sees the originals
    stored.against_original = false;
    view.rows = LoadOperand(stored, profile, inputs, is_key, batch, kv_head, {}).hi;
    return view;
  }
  const Op op(plan);
  if (!GridOf(format)) {  // a product of a code and a scale, which double holds
    AttentionCase stored = c;
    stored.against_original = false;
    view.rows = LoadOperand(stored, profile, inputs, is_key, batch, kv_head, {}).hi;
    for (double& value : view.rows) {
      value = op.Mul(value, 1);
      if (*plan.dequantize == DequantizeKind::kRounded) {
        value = op.Convert(*plan.dequantize_dtype, value);
      }
    }
    return view;
  }
  const auto group = static_cast<size_t>(GridOf(format)->group);
  const size_t groups = d / group;
  std::vector<double> codes = LoadCodes(c, inputs, is_key, batch, kv_head);
  if (integers || *plan.dequantize == DequantizeKind::kFactored) {
    view.rows = std::move(codes);
    view.stride = d + 2 * groups;
    view.group = group;
    return view;
  }
  view.rows.resize(static_cast<size_t>(c.kv_len) * d);
  for (size_t r = 0; r < static_cast<size_t>(c.kv_len); ++r) {
    const double* row = &codes[r * (d + 2 * groups)];
    for (size_t i = 0; i < d; ++i) {
      const double scale = row[d + i / group];
      const double bias = row[d + groups + i / group];
      double value = plan.dequantize_roundings == 1 ? op.Fma(row[i], scale, bias)
                                                    : op.Add(op.Mul(row[i], scale), bias);
      if (*plan.dequantize == DequantizeKind::kRounded) {
        value = op.Convert(*plan.dequantize_dtype, value);
      }
      view.rows[r * d + i] = value;
    }
  }
  return view;
}

void Store(const std::vector<double>& values, DType dtype, const Plan& plan,
           std::vector<std::byte>* bytes) {
  ConvertRule rule;
  if (*plan.saturate_output) rule.overflow = Overflow::kSaturate;
  if (plan.op->toward_zero) rule.rounding = Rounding::kTowardZero;
  bytes->resize(values.size() * SizeInBytes(dtype));
  EncodeFrom(values, dtype, bytes->data(), rule);
}

}  // namespace

SimulatedKernel::SimulatedKernel(Plan plan, Profile profile, AttentionRules rules, bool states_plan)
    : plan_(std::move(plan)),
      profile_(profile),
      rules_(std::move(rules)),
      states_plan_(states_plan) {}

Capabilities SimulatedKernel::GetCapabilities() const {
  Capabilities capabilities = {"simulated", "1", {"attention"}, plan_, profile_};
  capabilities.states_plan = states_plan_;
  return capabilities;
}

RunOutcome SimulatedKernel::Run(const Case& any_case, const TensorMap& inputs, Sink& sink) {
  const auto* c = std::get_if<AttentionCase>(&any_case);
  if (c == nullptr) return RunOutcome::kUnsupported;
  return RunResolved(Resolve(plan_, profile_, *c).plan, *c, inputs, sink);
}

RunOutcome SimulatedKernel::RunResolved(const Plan& plan, const AttentionCase& attention,
                                        const TensorMap& inputs, Sink& sink) const {
  const auto* c = &attention;
  const MaskReader mask(*c, profile_, inputs);
  const auto specs = OutputSpecs(*c);
  for (const auto& [name, spec] : specs) sink.Declare(name, spec.dtype, spec.shape);
  std::vector<double> sinks;
  if (c->sinks) {
    const Tensor& tensor = Get(inputs, "sinks");
    sinks.resize(static_cast<size_t>(tensor.ElementCount()));
    DecodeTo(tensor, 0, sinks);
  }
  RowKernel kernel(plan, *c, rules_);
  const int64_t ratio = c->query_heads / c->kv_heads;
  const auto d = static_cast<size_t>(c->k_dim);
  const auto dv = static_cast<size_t>(c->v_dim);
  std::vector<double> q(d);
  std::vector<std::byte> bytes;
  const std::vector<double> nothing(dv + 2 * dv, 0.0);  // the V row of a masked key
  for (int64_t b = 0; b < c->batch; ++b) {
    std::vector<OperandView> k_heads, v_heads;
    for (int64_t h = 0; h < c->kv_heads; ++h) {
      k_heads.push_back(ViewOperand(plan, profile_, *c, inputs, true, b, h));
      v_heads.push_back(ViewOperand(plan, profile_, *c, inputs, false, b, h));
    }
    kernel.FactorCodes(k_heads[0].group, v_heads[0].group);
    for (int64_t h = 0; h < c->query_heads; ++h) {
      int64_t kv_head = h / ratio;
      if (rules_.head_map) {
        const int64_t mapped = rules_.head_map(*c, h);
        if (mapped != kv_head) rules_.hits->fetch_add(1);
        kv_head = mapped;
      }
      const OperandView& k_head = k_heads[static_cast<size_t>(kv_head)];
      const OperandView& v_head = v_heads[static_cast<size_t>(kv_head)];
      for (int64_t l = 0; l < c->query_len; ++l) {
        const QueryIndex index = {b, h, l};
        const int64_t row = (b * c->query_heads + h) * c->query_len + l;
        DecodeTo(Get(inputs, "q"), row * c->k_dim, q);
        std::vector<double> query = kernel.EncodeQuery(q, profile_);
        kernel.Rotate(k_head.basis, query);
        VisibleSet set = mask.Visible(rules_.mask_query ? rules_.mask_query(*c, index) : index);
        if (rules_.visible) rules_.visible(*c, index, &set);
        std::vector<double> out(dv, 0.0);
        double lse = -kInfinity;
        const double sink_value = sinks.empty() ? -kInfinity : sinks[static_cast<size_t>(h)];
        const bool has_sink = sink_value != -kInfinity;
        const size_t n = set.keys.size();
        std::vector<Entry> entries;
        for (size_t j = 0; j < n; ++j) {
          const int32_t k_row = rules_.k_row ? rules_.k_row(set.keys, j) : set.keys[j];
          const int32_t v_row = rules_.v_row ? rules_.v_row(set.keys, j) : set.keys[j];
          const double bias = set.bias.empty() ? 0 : set.bias[j];
          entries.push_back({kernel.Score(query, k_head.Row(k_row), d, bias), set.keys[j], true,
                             v_head.Row(v_row)});
        }
        for (const int32_t key : set.hidden_keys) {
          entries.push_back({kernel.ForcedScore(set.hidden_score), key, true, v_head.Row(key)});
        }
        bool by_convention = false;  // the mean of a fully masked row that no finite score explains
        if (entries.empty() && !has_sink && profile_.masked_row == MaskedRow::kMean) {
          by_convention = true;
          for (int32_t key = 0; key < c->kv_len; ++key) {
            entries.push_back({0, key, true, v_head.Row(key)});
          }
        }
        if (profile_.maximum_over_all && !entries.empty() && !by_convention) {
          // A kernel that masks its weights, not its scores: every column keeps its place.
          for (size_t j = 0; j < set.masked_keys.size(); ++j) {
            const int32_t key = set.masked_keys[j];
            const double bias = set.masked_bias.empty() ? 0 : set.masked_bias[j];
            entries.push_back(
                {kernel.Score(query, k_head.Row(key), d, bias), key, false, nothing.data()});
          }
          std::vector<bool> present(static_cast<size_t>(c->kv_len));
          for (const Entry& entry : entries) present[static_cast<size_t>(entry.column)] = true;
          for (int32_t key = 0; key < c->kv_len; ++key) {
            if (present[static_cast<size_t>(key)]) continue;
            entries.push_back({-kInfinity, key, false, nothing.data()});
          }
        }
        std::sort(entries.begin(), entries.end(),
                  [](const Entry& x, const Entry& y) { return x.column < y.column; });
        const bool all_hidden = n == 0 && !set.hidden_keys.empty();
        if (n == 0 && !has_sink && profile_.masked_row == MaskedRow::kNan) {
          std::fill(out.begin(), out.end(), std::numeric_limits<double>::quiet_NaN());
        } else if ((n > 0 || has_sink || profile_.masked_row == MaskedRow::kMean) &&
                   !(all_hidden && profile_.masked_row == MaskedRow::kZero)) {
          const int splits = *plan.splits;
          const int64_t range = (c->kv_len + splits - 1) / splits;
          std::vector<Partial> partials;
          size_t begin = 0;
          for (int split = 0; split < splits; ++split) {
            size_t end = begin;
            while (end < entries.size() && entries[end].column < (split + 1) * range) ++end;
            const bool joins =
                rules_.sink_joins ? rules_.sink_joins(split, splits) : split == splits - 1;
            partials.push_back(kernel.RunSplit(std::span(entries).subspan(begin, end - begin),
                                               has_sink && joins, sink_value));
            begin = end;
          }
          kernel.Combine(std::move(partials), &out, &lse);
          kernel.RotateBack(v_head.basis, out);
        }
        if (*plan.flush_subnormals) {
          for (double& value : out) {
            const double smallest = FloatTypeOf(plan.op->dtype).smallest_normal;
            if (std::fabs(value) < smallest) value = std::copysign(0.0, value);
          }
        }
        if (plan.through) {
          for (double& value : out) value = Op(plan).Keep(*plan.through, value);
        }
        if (rules_.output) rules_.output(*c, index, out);
        Store(out, c->out, plan, &bytes);
        sink.Write("out", row * c->v_dim, bytes);
        if (specs.count("lse") != 0) {
          if (rules_.lse) lse = rules_.lse(*c, index, lse);
          const double value = c->lse == LseKind::kBase2 ? kernel.ToBase2(lse) : lse;
          Store({value}, specs.at("lse").dtype, plan, &bytes);
          sink.Write("lse", row, bytes);
        }
      }
    }
  }
  return RunOutcome::kAnswered;
}

}  // namespace kvcheck
