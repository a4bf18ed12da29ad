// What is asked, and nothing about who answers. A case prints as one line and parses back to the
// same value; the line is the reproducer, the key in a golden file and what crosses to another
// process. Grammar: reference/README.md. Kinds today: codec, attention, tensor, cache (a trace of
// operations, trace.h), prefix (a history of requests, prefix_case.h).

#ifndef REFERENCE_SPEC_CASE_H_
#define REFERENCE_SPEC_CASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "reference/spec/data_source.h"
#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/mask.h"
#include "reference/spec/prefix_case.h"
#include "reference/spec/shape.h"
#include "reference/spec/tensor.h"
#include "reference/spec/tolerance.h"
#include "reference/spec/trace.h"

namespace kvcheck {

// Rows [rows][head_dim] of one storage format.
//   encode:     x -> codes (and scales, biases), judged bit for bit
//   decode:     codes -> y, judged bit for bit
//   round_trip: x -> y, judged against x by the format's error bound
enum class CodecDirection { kEncode, kDecode, kRoundTrip };
std::string_view Name(CodecDirection direction);

struct CodecCase {
  CodecDirection direction = CodecDirection::kRoundTrip;
  KvFormat format;
  DType x = DType::kFloat32;  // type of the original rows
  int64_t rows = 1;
  int64_t head_dim = 64;
  DataSource data;
  bool operator==(const CodecCase&) const = default;
};

// Physical arrangement of K and V. Dense is (B, Hkv, T, D); paged tables and packed
// variable-length batches are the seam for serving engines and parse as reserved words.
enum class AttentionLayout { kDense };

enum class LseKind { kNone, kNatural, kBase2 };

// out[b,h,l,:] = softmax_j(softcap(scale q.k_j) + bias_j) . v_j over the visible keys j.
// Shapes: q (B,Hq,L,Dk), k (B,Hkv,T,Dk), v (B,Hkv,T,Dv), out (B,Hq,L,Dv), lse (B,Hq,L).
// Query head h reads key/value head h / (Hq / Hkv).
struct AttentionCase {
  int64_t batch = 1;
  int64_t query_heads = 1;
  int64_t kv_heads = 1;
  int64_t query_len = 1;
  int64_t kv_len = 1;
  int64_t k_dim = 64;
  int64_t v_dim = 64;
  DType q = DType::kFloat32;
  KvFormat k = PlainFormat{};
  KvFormat v = PlainFormat{};
  DType out = DType::kFloat32;
  AttentionLayout layout = AttentionLayout::kDense;
  MaskSpec mask;
  double scale = 0.125;           // the exact real value of this double
  std::optional<double> softcap;  // score = softcap * tanh(score / softcap)
  std::optional<DType> sinks;     // type of the input `sinks` (Hq): one extra logit per head
  bool alibi = false;             // input `alibi_slopes` (Hq, f32): bias -slope |i - j|
  LseKind lse = LseKind::kNone;   // log-sum-exp of the scores, sink included
  std::optional<DType> lse_type;  // in which it is stored; unset: f32, or f64 where `out` is
  // Compare with attention over the original K and V (inputs k_original, v_original) instead of the
  // stored values; the codecs' error joins the bound.
  bool against_original = false;
  DataSource data;
  bool operator==(const AttentionCase&) const = default;
};

// The type in which a case's log-sum-exp is stored.
DType LseType(const AttentionCase& c);

// Two stored tensors (`expected`, `got`) and a rule.
struct TensorCase {
  DType dtype = DType::kFloat32;
  Shape shape;
  ToleranceRule rule;
  DataSource data;
  bool operator==(const TensorCase&) const = default;
};

using Case = std::variant<CodecCase, AttentionCase, TensorCase, CacheCase, PrefixCase>;

std::string Print(const Case& c);
// Errors: kParse with column and reason; kIllegalCase for a case that is well formed and undefined
// (Hq not a multiple of Hkv, a group that does not divide head_dim, padding beyond T, ...).
Case ParseCase(std::string_view text);
// The kIllegalCase part, for cases built in code: also refuses values that have no text (an extent
// below 1, a scale that is not finite, ...).
void Validate(const Case& c);

std::string_view KindName(const Case& c);
const DataSource& DataOf(const Case& c);

// The tensors that a case needs, with types and named axes. Affine K appears as k_codes (B,Hkv,T,W)
// u32, k_scales and k_biases (B,Hkv,T,G); plain K as k.
struct TensorSpec {
  DType dtype;
  Shape shape;
};
// A plane of rows that have these axes before their last one; a parameter has its own alone.
TensorSpec SpecOf(const Plane& plane, Shape leading);
// Of a trace, the parameters of its formats: its vectors follow from its operations.
std::map<std::string, TensorSpec> InputSpecs(const Case& c);
// The tensors that an implementation answers with.
std::map<std::string, TensorSpec> OutputSpecs(const Case& c);
// Errors: kMissingData when an input of the case is absent, of another type or shape, or does not
// hold the bytes of its shape.
void CheckInputs(const Case& c, const TensorMap& inputs);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_CASE_H_
