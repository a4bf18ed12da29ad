#include "optimized/attention/attention_implementation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "optimized/attention/attention_plan.h"
#include "optimized/formats/row_codec.h"
#include "reference/spec/glob.h"

namespace kvcheck {
namespace {

using optimized::AttentionShape;
using optimized::ColumnRun;
using optimized::SequenceQueries;
using optimized::StoredHeads;
using optimized::VisibleKeys;

// A tensor's numbers as f32; f64 is rounded.
std::vector<float> AsFloats(const Tensor& tensor) {
  const int64_t count = tensor.ElementCount();
  std::vector<float> values(static_cast<size_t>(count));
  if (tensor.dtype == DType::kBool) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = tensor.bytes[i] == std::byte{0} ? 0 : 1;
    return values;
  }
  optimized::RowCodec codec;
  codec.Start(PlainFormat{tensor.dtype}, DType::kFloat32, count);
  codec.Decode({tensor.bytes.data(), nullptr, nullptr, 0, 0}, 1, values.data());
  return values;
}

std::vector<std::byte> FromFloats(const std::vector<float>& values, DType dtype) {
  const auto count = static_cast<int64_t>(values.size());
  optimized::RowCodec codec;
  codec.Start(PlainFormat{dtype}, DType::kFloat32, count);
  std::vector<std::byte> bytes(static_cast<size_t>(codec.bytes().codes));
  codec.Encode(reinterpret_cast<const std::byte*>(values.data()), 0, 1,
               {bytes.data(), nullptr, nullptr, 0, 0});
  return bytes;
}

AttentionShape ShapeOf(const AttentionCase& c, bool portable) {
  AttentionShape shape;
  shape.query_heads = c.query_heads;
  shape.kv_heads = c.kv_heads;
  shape.k_dim = c.k_dim;
  shape.v_dim = c.v_dim;
  shape.k = c.k;
  shape.v = c.v;
  shape.scale = c.scale;
  shape.softcap = c.softcap;
  shape.portable = portable;
  return shape;
}

bool HasWideMask(const AttentionCase& c) {
  return c.mask.array == MaskArrayKind::kAdditive && c.mask.additive_dtype == DType::kFloat64;
}

// A mask in f64 may cancel slope times distance: the two are added here, and rounded once.
bool AddsAlibiToMask(const AttentionCase& c) { return c.alibi && HasWideMask(c); }

Plan PlanOfCase(const AttentionCase& c, bool portable) {
  optimized::PlanQuestion question;
  question.kv_len = c.kv_len;
  question.alibi = c.alibi && !AddsAlibiToMask(c);
  const bool rounded_mask = HasWideMask(c);
  const bool rounded_sinks = c.sinks == DType::kFloat64;
  question.bias_roundings = rounded_mask || rounded_sinks ? 1 : 0;
  return optimized::PlanOf(ShapeOf(c, portable), question);
}

// The vectors of K or V of batch row b, head-major and contiguous.
StoredHeads HeadsOf(const AttentionCase& c, const TensorMap& inputs, bool is_key, int64_t b) {
  const std::string name = is_key ? "k" : "v";
  const KvFormat& format = is_key ? c.k : c.v;
  const optimized::RowBytes bytes = optimized::RowBytesOf(format, is_key ? c.k_dim : c.v_dim);
  StoredHeads heads;
  heads.code_stride = bytes.codes;
  heads.code_head_stride = c.kv_len * bytes.codes;
  const Planes planes = PlanesOf(format, is_key ? c.k_dim : c.v_dim);
  const auto plane = [&](size_t i) {
    return Get(inputs, PlaneTensor(format, name, planes[i])).bytes.data();
  };
  heads.codes = plane(0) + b * c.kv_heads * heads.code_head_stride;
  if (bytes.scales == 0) return heads;
  heads.scale_stride = bytes.scales;
  heads.scale_head_stride = c.kv_len * bytes.scales;
  const int64_t row = b * c.kv_heads * heads.scale_head_stride;
  heads.scales = plane(1) + row;
  if (bytes.biases != 0) heads.biases = plane(2) + row;
  return heads;
}

// The mask of one case as the kernels take it: positions are columns behind the row's padding.
class Masks {
 public:
  Masks(const AttentionCase& c, const TensorMap& inputs) : c_(c) {
    if (c.mask.array != MaskArrayKind::kNone) {
      array_ = AsFloats(Get(inputs, "mask"));
      if (HasWideMask(c)) wide_ = Get(inputs, "mask").As<double>();
      words_ = (c.kv_len + 63) / 64;
    }
    heads_ =
        c.mask.array != MaskArrayKind::kNone && c.mask.axes == MaskAxes::kBHLT ? c.query_heads : 1;
  }

  // Of batch row b; valid until the next call. slopes: of ALiBi where the case has them.
  void Take(int64_t b, const std::vector<float>& slopes, SequenceQueries* to) {
    const int64_t padding = Padding(b);
    const auto count = static_cast<size_t>(heads_ * c_.query_len);
    visible_.assign(count, {});
    bits_.assign(count * static_cast<size_t>(words_), 0);
    for (int64_t h = 0; h < heads_; ++h) {
      for (int64_t l = 0; l < c_.query_len; ++l) {
        const auto index = static_cast<size_t>(h * c_.query_len + l);
        VisibleKeys& keys = visible_[index];
        const int64_t position = Position(l);
        keys.end = c_.kv_len - padding;
        if (c_.mask.causal != CausalAlignment::kNone) {
          keys.end = std::min(keys.end, position + 1 - padding);
        }
        keys.end = std::max<int64_t>(keys.end, 0);
        if (c_.mask.window && *c_.mask.window <= position) {
          keys.from = std::max<int64_t>(position + 1 - *c_.mask.window - padding, 0);
        }
        if (array_.empty()) continue;
        uint64_t* bits = &bits_[index * static_cast<size_t>(words_)];
        const float* row = &array_[static_cast<size_t>(RowOf(b, h, l) * c_.kv_len)];
        const bool boolean = c_.mask.array == MaskArrayKind::kBoolean;
        for (int64_t p = 0; p < keys.end; ++p) {
          const float value = row[p + padding];
          const bool shown =
              boolean ? value != 0 : value != -std::numeric_limits<float>::infinity();
          if (shown) bits[p / 64] |= uint64_t{1} << (p % 64);
        }
        keys.bits = bits;
      }
    }
    to->visible = visible_.data();
    to->visible_head_stride = heads_ == 1 ? 0 : c_.query_len;
    to->first_position = Position(0) - padding;
    if (c_.mask.array != MaskArrayKind::kAdditive) return;
    if (AddsAlibiToMask(c_)) {
      AddAlibi(b, slopes);
      to->bias = sums_.data() + padding;
      to->bias_head_stride = c_.query_len * c_.kv_len;
      to->bias_stride = c_.kv_len;
      return;
    }
    to->bias = &array_[static_cast<size_t>(RowOf(b, 0, 0) * c_.kv_len)] + padding;
    to->bias_head_stride = heads_ == 1 ? 0 : c_.query_len * c_.kv_len;
    const bool per_query = c_.mask.axes != MaskAxes::kT && c_.mask.axes != MaskAxes::kB11T;
    to->bias_stride = per_query ? c_.kv_len : 0;
  }

  int64_t Padding(int64_t b) const {
    return c_.mask.left_padding.empty() ? 0 : c_.mask.left_padding[static_cast<size_t>(b)];
  }
  // Whether a query sees a key at all.
  static bool SeesAny(const VisibleKeys& keys) {
    for (int64_t block = 0; block * optimized::kBlockTokens < keys.end; ++block) {
      if (keys.Word(block) != 0) return true;
    }
    return false;
  }

 private:
  int64_t Position(int64_t l) const {
    return c_.mask.causal == CausalAlignment::kTopLeft ? l : c_.kv_len - c_.query_len + l;
  }
  int64_t RowOf(int64_t b, int64_t h, int64_t l) const {
    switch (c_.mask.axes) {
      case MaskAxes::kT:
        return 0;
      case MaskAxes::kLT:
        return l;
      case MaskAxes::kB1LT:
        return b * c_.query_len + l;
      case MaskAxes::kBHLT:
        return (b * c_.query_heads + h) * c_.query_len + l;
      case MaskAxes::kB11T:
        return b;
    }
    return 0;
  }

  // Of every head, over all columns.
  void AddAlibi(int64_t b, const std::vector<float>& slopes) {
    sums_.resize(static_cast<size_t>(c_.query_heads * c_.query_len * c_.kv_len));
    float* to = sums_.data();
    for (int64_t h = 0; h < c_.query_heads; ++h) {
      const auto slope = static_cast<double>(slopes[static_cast<size_t>(h)]);
      for (int64_t l = 0; l < c_.query_len; ++l) {
        const double* row = wide_ + RowOf(b, h, l) * c_.kv_len;
        for (int64_t j = 0; j < c_.kv_len; ++j) {
          const auto distance = static_cast<double>(std::abs(Position(l) - j));
          *to++ = static_cast<float>(row[j] - slope * distance);
        }
      }
    }
  }

  const AttentionCase& c_;
  std::vector<float> array_;
  const double* wide_ = nullptr;  // the same in f64
  std::vector<float> sums_;       // with ALiBi
  int64_t words_ = 0;
  int64_t heads_ = 1;
  std::vector<VisibleKeys> visible_;
  std::vector<uint64_t> bits_;
};

// What the kernel does not do by itself: the convention for queries that see no key. `out` and
// `one` point to batch row b.
void GiveMaskedRows(const AttentionCase& c, const Profile& profile, const AttentionShape& shape,
                    const SequenceQueries& sequence, optimized::Attention* attention) {
  if (profile.masked_row == MaskedRow::kZero) return;
  const ColumnRun everything = {0, 0, c.kv_len};
  VisibleKeys mean;
  mean.end = c.kv_len;
  mean.uniform = true;
  const int64_t group = c.query_heads / c.kv_heads;
  for (int64_t h = 0; h < c.query_heads; ++h) {
    // The sink is seen, unless its logit disables it.
    if (sequence.sinks != nullptr && sequence.sinks[h] != -std::numeric_limits<float>::infinity()) {
      continue;
    }
    for (int64_t l = 0; l < c.query_len; ++l) {
      if (Masks::SeesAny(sequence.visible[h * sequence.visible_head_stride + l])) continue;
      float* out = sequence.out + h * sequence.out_head_stride + l * sequence.out_stride;
      if (profile.masked_row == MaskedRow::kNan) {
        std::fill(out, out + c.v_dim, std::numeric_limits<float>::quiet_NaN());
      }
      if (profile.masked_row != MaskedRow::kMean) continue;
      AttentionShape one = shape;  // one head
      one.query_heads = one.kv_heads = 1;
      one.softcap.reset();
      SequenceQueries row = sequence;
      row.queries = 1;
      const int64_t kv_head = h / group;
      one.k = FormatOfHead(shape.k, kv_head);
      one.v = FormatOfHead(shape.v, kv_head);
      row.k.codes += kv_head * row.k.code_head_stride;
      row.v.codes += kv_head * row.v.code_head_stride;
      for (StoredHeads* heads : {&row.k, &row.v}) {
        const int64_t of_head = kv_head * heads->scale_head_stride;
        if (heads->scales != nullptr) heads->scales += of_head;
        if (heads->biases != nullptr) heads->biases += of_head;
      }
      row.columns = {&everything, 1};
      row.visible = &mean;
      row.visible_head_stride = 0;
      row.bias = nullptr;
      row.alibi_slopes = nullptr;
      row.sinks = nullptr;
      row.out = out;
      row.lse = nullptr;
      attention->Run(one, {&row, 1});
    }
  }
}

}  // namespace

OptimizedAttention::OptimizedAttention(const Profile& profile, bool portable, int threads)
    : profile_(profile), portable_(portable), plan_(StatedPlan(portable)), attention_(threads) {}

Plan OptimizedAttention::StatedPlan(bool portable) {
  AttentionCase c;
  c.k = c.v = AffineFormat{};
  return PlanOfCase(c, portable);
}

std::vector<AttentionSpace> OptimizedAttention::Spaces() {
  AttentionSpace space;
  space.q = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  space.out = space.q;
  space.k = {"f32",          "f16",   "bf16",   "f8*",       "affine:*",
             "turboquant:*", "fp8:*", "int8:*", "hadamard:*"};
  for (const KvFormat& format : AllKvFormats()) {
    const std::string text = Print(format);
    if (optimized::CanAttend(format) && !MatchesAnyGlob(space.k, text)) space.k.push_back(text);
  }
  space.v = space.k;
  return {space};
}

Capabilities OptimizedAttention::GetCapabilities() const {
  Capabilities capabilities = {"optimized",     "1",     {"attention"}, StatedPlan(portable_),
                               StatedProfile(), Spaces()};
  capabilities.states_plan = true;
  capabilities.conventions = Conventions::kOwnButMaskedRows;
  return capabilities;
}

RunOutcome OptimizedAttention::Run(const Case& any_case, const TensorMap& inputs, Sink& sink) {
  const auto* c = std::get_if<AttentionCase>(&any_case);
  if (c == nullptr || c->q == DType::kFloat64 || c->out == DType::kFloat64 ||
      !optimized::CanAttend(c->k) || !optimized::CanAttend(c->v)) {
    return RunOutcome::kUnsupported;
  }
  // The cap is an f32.
  if (c->softcap && !std::isnormal(static_cast<float>(*c->softcap))) {
    return RunOutcome::kUnsupported;
  }
  const Profile stated = StatedProfile();
  const bool coded = !IsPlain(c->k) || !IsPlain(c->v);
  if (profile_.mask_value != stated.mask_value || profile_.maximum_over_all ||
      (coded &&
       (profile_.decode != stated.decode || profile_.turboquant == TurboquantWriter::kVllmNc))) {
    return RunOutcome::kUnsupported;
  }
  plan_ = PlanOfCase(*c, portable_);
  const AttentionShape shape = ShapeOf(*c, portable_);
  const std::vector<float> q = AsFloats(Get(inputs, "q"));
  std::vector<float> sinks, slopes;
  if (c->sinks) sinks = AsFloats(Get(inputs, "sinks"));
  if (c->alibi) slopes = AsFloats(Get(inputs, "alibi_slopes"));
  Masks masks(*c, inputs);
  const int64_t rows = c->query_heads * c->query_len;
  std::vector<float> out(static_cast<size_t>(c->batch * rows * c->v_dim));
  std::vector<float> lse(static_cast<size_t>(c->batch * rows));
  for (int64_t b = 0; b < c->batch; ++b) {
    SequenceQueries sequence;
    sequence.k = HeadsOf(*c, inputs, true, b);
    sequence.v = HeadsOf(*c, inputs, false, b);
    const ColumnRun run = {0, masks.Padding(b), c->kv_len - masks.Padding(b)};
    sequence.columns = {&run, 1};
    sequence.queries = c->query_len;
    sequence.q = q.data() + b * rows * c->k_dim;
    sequence.q_stride = c->k_dim;
    sequence.q_head_stride = c->query_len * c->k_dim;
    if (c->alibi && !AddsAlibiToMask(*c)) sequence.alibi_slopes = slopes.data();
    masks.Take(b, slopes, &sequence);
    if (c->sinks) sequence.sinks = sinks.data();
    sequence.out = out.data() + b * rows * c->v_dim;
    sequence.out_stride = c->v_dim;
    sequence.out_head_stride = c->query_len * c->v_dim;
    if (c->lse != LseKind::kNone) sequence.lse = lse.data() + b * rows;
    sequence.lse_head_stride = c->query_len;
    sequence.lse_base2 = c->lse == LseKind::kBase2;
    attention_.Run(shape, {&sequence, 1});
    GiveMaskedRows(*c, profile_, shape, sequence, &attention_);
  }
  for (const auto& [name, spec] : OutputSpecs(any_case)) {
    sink.Declare(name, spec.dtype, spec.shape);
    sink.Write(name, 0, FromFloats(name == "out" ? out : lse, spec.dtype));
  }
  return RunOutcome::kAnswered;
}

}  // namespace kvcheck
