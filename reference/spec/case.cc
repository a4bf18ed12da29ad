#include "reference/spec/case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "reference/spec/case_kind.h"
#include "reference/spec/enum_text.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "reference/spec/token_groups.h"
#include "reference/spec/white_space.h"

namespace kvcheck {
namespace {

constexpr EnumNames<CodecDirection, 3> kDirections = {{{CodecDirection::kEncode, "encode"},
                                                       {CodecDirection::kDecode, "decode"},
                                                       {CodecDirection::kRoundTrip, "round_trip"}}};
constexpr EnumNames<LseKind, 3> kLse = {
    {{LseKind::kNone, "none"}, {LseKind::kNatural, "natural"}, {LseKind::kBase2, "base2"}}};
constexpr EnumNames<bool, 2> kAgainst = {{{false, "stored"}, {true, "original"}}};

// Keeps every product of extents far inside int64.
constexpr int64_t kMaxExtent = int64_t{1} << 31;
constexpr int64_t kMaxElements = int64_t{1} << 40;

bool IsRealType(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

DType ParseRealType(Piece piece) {
  const auto dtype = ParseDType(piece.text);
  if (!dtype || !IsRealType(*dtype)) piece.Refuse("expected f64, f32, f16 or bf16");
  return *dtype;
}

int64_t ParseExtent(Piece piece) { return ParseInt(piece, 1, kMaxExtent); }

constexpr std::string_view kCodecKeys = "op, format, x, rows, d, data";
constexpr std::string_view kAttentionKeys =
    "b, hq, hkv, l, t, d, dv, q, k, v, out, layout, mask, scale, softcap, sinks, alibi, lse, "
    "against, data";
constexpr std::string_view kTensorKeys = "dtype, shape, axes, rule, data";

CodecCase ParseCodec(Fields* fields) {
  CodecCase c;
  c.direction = ParseEnum(kDirections, fields->Take("op"));
  c.format = ParseKvFormat(fields->Take("format"));
  c.x = ParseRealType(fields->Take("x"));
  c.rows = ParseExtent(fields->Take("rows"));
  c.head_dim = ParseExtent(fields->Take("d"));
  c.data = ParseDataSource(fields->Take("data"));
  fields->Finish();
  return c;
}

AttentionCase ParseAttention(Fields* fields) {
  AttentionCase c;
  Piece value;
  if (fields->TakeIf("b", &value)) c.batch = ParseExtent(value);
  c.query_heads = ParseExtent(fields->Take("hq"));
  c.kv_heads = ParseExtent(fields->Take("hkv"));
  c.query_len = ParseExtent(fields->Take("l"));
  c.kv_len = ParseExtent(fields->Take("t"));
  c.k_dim = ParseExtent(fields->Take("d"));
  c.v_dim = fields->TakeIf("dv", &value) ? ParseExtent(value) : c.k_dim;
  c.q = ParseRealType(fields->Take("q"));
  c.k = ParseKvFormat(fields->Take("k"));
  c.v = ParseKvFormat(fields->Take("v"));
  c.out = ParseRealType(fields->Take("out"));
  if (fields->TakeIf("layout", &value)) {
    if (value.text == "paged" || value.text == "packed") {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("layout '{}' is no layout of a case; the Python package judges it: "
                      "kvcheck.judge_attention(out, q, k, v, {}). Here give K and V as (B, Hkv, T, "
                      "D)",
                      value.text,
                      value.text == "paged"
                          ? "block_table=..., kv_lens=..."
                          : "layout=\"shd\", cu_seqlens_q=..., cu_seqlens_k=..."));
    }
    if (value.text != "dense") {
      value.Refuse(
          "layout is dense: K and V as (B, Hkv, T, D); other orders, pages and packed "
          "sequences are judged by the Python package, kvcheck.judge_attention");
    }
  }
  if (fields->TakeIf("mask", &value)) c.mask = ParseMask(value);
  c.scale = fields->TakeIf("scale", &value) ? ParseReal(value)
                                            : 1.0 / std::sqrt(static_cast<double>(c.k_dim));
  if (fields->TakeIf("softcap", &value)) {
    c.softcap = ParseReal(value);
    if (!(*c.softcap > 0)) value.Refuse("softcap is positive");
  }
  if (fields->TakeIf("sinks", &value)) c.sinks = ParseRealType(value);
  if (fields->TakeIf("alibi", &value)) {
    if (value.text != "yes") value.Refuse("alibi=yes, or leave it out");
    c.alibi = true;
  }
  if (fields->TakeIf("lse", &value)) {
    const std::vector<Piece> parts = Split(value, ':');
    c.lse = ParseEnum(kLse, parts[0]);
    if (parts.size() > 2 || (parts.size() == 2 && c.lse == LseKind::kNone)) {
      value.Refuse(
          "lse is none, natural or base2, and the type in which it is stored: "
          "lse=natural:bf16");
    }
    if (parts.size() == 2) {
      c.lse_type = ParseRealType(parts[1]);
      // Left out, it is the same case.
      const DType said = *c.lse_type;
      c.lse_type.reset();
      if (said != LseType(c)) c.lse_type = said;
    }
  }
  if (fields->TakeIf("against", &value)) c.against_original = ParseEnum(kAgainst, value);
  c.data = ParseDataSource(fields->Take("data"));
  fields->Finish();
  return c;
}

constexpr std::string_view kTensorRules =
    "a tensor case has a rule between two tensors: exact, ulp:N, abs:X, rel:Y or abs:X,rel:Y";

// Two tensors of one type say neither which rows were stored nor which case made them.
bool IsTensorRule(const ToleranceRule& rule) {
  return !std::holds_alternative<CodecRule>(rule) && !std::holds_alternative<DerivedRule>(rule);
}

TensorCase ParseTensor(Fields* fields) {
  TensorCase c;
  Piece value = fields->Take("dtype");
  const auto dtype = ParseDType(value.text);
  if (!dtype) value.Refuse("unknown type");
  c.dtype = *dtype;
  value = fields->Take("shape");
  if (value.text != "scalar") {
    for (const Piece& extent : Split(value, 'x')) {
      c.shape.axes.push_back({"", ParseInt(extent, 0, kMaxExtent)});
    }
  }
  if (fields->TakeIf("axes", &value)) {
    const std::vector<Piece> names = Split(value, ',');
    if (names.size() != c.shape.axes.size()) value.Refuse("one axis name per extent");
    for (size_t i = 0; i < names.size(); ++i) {
      if (!names[i].text.empty() && !IsAxisName(names[i].text)) {
        names[i].Refuse("axes are B, Hq, Hkv, L, T, Dk, Dv, G, W");
      }
      c.shape.axes[i].name = std::string(names[i].text);
    }
  }
  value = fields->Take("rule");
  c.rule = ParseToleranceRule(value);
  if (!IsTensorRule(c.rule)) value.Refuse(kTensorRules);
  c.data = ParseDataSource(fields->Take("data"));
  fields->Finish();
  return c;
}

std::string PrintKind(const CodecCase& c) {
  return fmt::format("codec op={} format={} x={} rows={} d={} data={}",
                     NameIn(kDirections, c.direction), Print(c.format), ShortName(c.x), c.rows,
                     c.head_dim, Print(c.data));
}

std::string PrintKind(const AttentionCase& c) {
  std::string text = fmt::format("attention b={} hq={} hkv={} l={} t={} d={}", c.batch,
                                 c.query_heads, c.kv_heads, c.query_len, c.kv_len, c.k_dim);
  if (c.v_dim != c.k_dim) text += fmt::format(" dv={}", c.v_dim);
  text += fmt::format(" q={} k={} v={} out={} mask={} scale={}", ShortName(c.q), Print(c.k),
                      Print(c.v), ShortName(c.out), Print(c.mask), PrintReal(c.scale));
  if (c.softcap) text += fmt::format(" softcap={}", PrintReal(*c.softcap));
  if (c.sinks) text += fmt::format(" sinks={}", ShortName(*c.sinks));
  if (c.alibi) text += " alibi=yes";
  if (c.lse != LseKind::kNone) text += fmt::format(" lse={}", NameIn(kLse, c.lse));
  if (c.lse != LseKind::kNone && c.lse_type) text += fmt::format(":{}", ShortName(*c.lse_type));
  if (c.against_original) text += " against=original";
  return text + fmt::format(" data={}", Print(c.data));
}

std::string PrintKind(const TensorCase& c) {
  std::vector<std::string> extents;
  std::vector<std::string> names;
  bool named = false;
  for (const Axis& axis : c.shape.axes) {
    extents.push_back(fmt::format("{}", axis.extent));
    names.push_back(axis.name);
    named = named || !axis.name.empty();
  }
  std::string text =
      fmt::format("tensor dtype={} shape={}", ShortName(c.dtype),
                  extents.empty() ? "scalar" : fmt::format("{}", fmt::join(extents, "x")));
  if (named) text += fmt::format(" axes={}", fmt::join(names, ","));
  return text + fmt::format(" rule={} data={}", Print(c.rule), Print(c.data));
}

std::string PrintKind(const CacheCase& c) { return Print(c); }
std::string PrintKind(const PrefixCase& c) { return Print(c); }

[[noreturn]] void Illegal(const std::string& what) { throw Error(ErrorCode::kIllegalCase, what); }

void CheckProduct(std::initializer_list<int64_t> extents) {
  int64_t product = 1;
  for (int64_t extent : extents) {
    if (extent > kMaxElements / product) {
      Illegal(fmt::format("a tensor of the case would exceed {} elements", kMaxElements));
    }
    product *= std::max<int64_t>(extent, 1);
  }
}

void CheckExtent(std::string_view name, int64_t extent, int64_t lowest) {
  if (extent < lowest || extent > kMaxExtent) {
    Illegal(fmt::format("{}={} is outside {}..{}", name, extent, lowest, kMaxExtent));
  }
}

void CheckRealType(std::string_view name, DType dtype) {
  if (!IsRealType(dtype)) {
    Illegal(fmt::format("{}={} is none of f64, f32, f16 and bf16", name, ShortName(dtype)));
  }
}

void CheckData(const DataSource& data) {
  if (!HasText(data)) Illegal("data is REGIME:SEED, file or file:HASH");
}

void CheckMask(const MaskSpec& mask, const AttentionCase& c) {
  if (mask.window && *mask.window < 1) Illegal("a window holds at least 1 token");
  if (mask.array == MaskArrayKind::kAdditive) CheckRealType("mask", mask.additive_dtype);
  if (mask.array != MaskArrayKind::kNone) {
    int64_t product = 1;
    for (const Axis& axis :
         MaskShape(mask.axes, c.batch, c.query_heads, c.query_len, c.kv_len).axes) {
      CheckProduct({product, axis.extent});
      product *= axis.extent;
    }
  }
  if (mask.left_padding.empty()) return;
  if (static_cast<int64_t>(mask.left_padding.size()) != c.batch) {
    Illegal(
        fmt::format("left_pad names {} rows, the batch has {}", mask.left_padding.size(), c.batch));
  }
  for (int64_t padding : mask.left_padding) {
    if (padding < 0) Illegal(fmt::format("left_pad {} is negative", padding));
    if (padding > c.kv_len) Illegal(fmt::format("left_pad {} exceeds t={}", padding, c.kv_len));
  }
}

void ValidateKind(const CodecCase& c) {
  CheckExtent("rows", c.rows, 1);
  CheckExtent("d", c.head_dim, 1);
  CheckRealType("x", c.x);
  CheckData(c.data);
  CheckHeadDim(c.format, c.head_dim, "codec case");
  CheckProduct({c.rows, c.head_dim});
}

void ValidateKind(const AttentionCase& c) {
  CheckExtent("b", c.batch, 1);
  CheckExtent("hq", c.query_heads, 1);
  CheckExtent("hkv", c.kv_heads, 1);
  CheckExtent("l", c.query_len, 1);
  CheckExtent("t", c.kv_len, 1);
  CheckExtent("d", c.k_dim, 1);
  CheckExtent("dv", c.v_dim, 1);
  CheckRealType("q", c.q);
  CheckRealType("out", c.out);
  if (c.sinks) CheckRealType("sinks", *c.sinks);
  if (c.lse_type) CheckRealType("lse", *c.lse_type);
  if (c.lse_type && c.lse == LseKind::kNone)
    Illegal("a type of lse goes with lse=natural or base2");
  if (!std::isfinite(c.scale)) Illegal("scale is a finite number");
  if (c.softcap && !(std::isfinite(*c.softcap) && *c.softcap > 0)) {
    Illegal("softcap is a finite positive number");
  }
  CheckData(c.data);
  if (c.query_heads % c.kv_heads != 0) {
    Illegal(fmt::format("hq={} is not a multiple of hkv={}", c.query_heads, c.kv_heads));
  }
  for (const KvFormat* format : {&c.k, &c.v}) {
    if (!GroupsTokens(*format)) continue;  // CheckHeadDim refuses other formats of caches
    Illegal(
        fmt::format("{} stores groups of tokens, and an attention case its tokens one by one: ask "
                    "{}with K or V as a cache shows it, {}",
                    Print(*format), CachesKeep(*format) ? "with a cache case, or " : "",
                    Print(TokenFormatOf(*format))));
  }
  CheckHeadDim(c.k, c.k_dim, "K of the attention case");
  CheckHeadDim(c.v, c.v_dim, "V of the attention case");
  CheckHeads(c.k, c.kv_heads, "K of the attention case");
  CheckHeads(c.v, c.kv_heads, "V of the attention case");
  CheckProduct({c.batch, c.query_heads, c.query_len, std::max(c.k_dim, c.v_dim)});
  CheckProduct({c.batch, c.kv_heads, c.kv_len, std::max(c.k_dim, c.v_dim)});
  CheckMask(c.mask, c);
  if (c.against_original && IsPlain(c.k) && IsPlain(c.v)) {
    Illegal("against=original needs a K or V in a codec format; plain values are the originals");
  }
}

void ValidateKind(const TensorCase& c) {
  int64_t product = 1;
  for (const Axis& axis : c.shape.axes) {
    CheckExtent("shape", axis.extent, 0);
    if (!axis.name.empty() && !IsAxisName(axis.name)) {
      Illegal(fmt::format("'{}' is not the name of an axis", axis.name));
    }
    // An empty axis does not excuse the others: strides are products of all of them.
    const int64_t extent = std::max<int64_t>(axis.extent, 1);
    CheckProduct({product, extent});
    product *= extent;
  }
  if (!IsTensorRule(c.rule)) Illegal(std::string(kTensorRules));
  if (const auto* ulp = std::get_if<UlpRule>(&c.rule); ulp != nullptr && ulp->ulps < 0) {
    Illegal("rule=ulp:N needs N of at least 0");
  }
  if (const auto* sum = std::get_if<AbsRelRule>(&c.rule)) {
    for (double tolerance : {sum->absolute, sum->relative}) {
      if (!(std::isfinite(tolerance) && tolerance >= 0)) {
        Illegal("a tolerance is finite and at least 0");
      }
    }
  }
  CheckData(c.data);
  if (std::holds_alternative<UlpRule>(c.rule) && !IsFloat(c.dtype)) {
    Illegal("rule=ulp:N needs a float type");
  }
}

void ValidateKind(const CacheCase& c) { ValidateCacheCase(c); }
void ValidateKind(const PrefixCase& c) { ValidatePrefixCase(c); }

}  // namespace

std::string_view Name(CodecDirection direction) { return NameIn(kDirections, direction); }

std::string Print(const Case& c) {
  return std::visit([](const auto& kind) { return PrintKind(kind); }, c);
}

namespace {

// fields: the text after the kind's name.
template <typename C, C (*kParse)(Fields*)>
Case ParseFields(Piece fields, std::string_view keys) {
  Fields read(fields, keys);
  return kParse(&read);
}

// C: a setup and operations, whose text is read with its kind.
template <typename C, C (*kParse)(std::string_view)>
Case ParseOperations(Piece fields, std::string_view) {
  return kParse(fields.whole);
}

// How a kind is written; how it is printed, validated and what tensors it has are overloads, which
// std::visit wants of every kind.
struct KindText {
  std::string_view name;
  std::string_view keys;
  Case (*parse)(Piece fields, std::string_view keys);
  bool is_asked = true;
  bool has_plan = false;
  bool has_profile = false;
  bool has_tensors = true;
};

constexpr KindTable<KindText> kKinds = {{{
    {"codec", kCodecKeys, ParseFields<CodecCase, ParseCodec>, true, false, true},
    {"attention", kAttentionKeys, ParseFields<AttentionCase, ParseAttention>, true, true, true},
    {"tensor", kTensorKeys, ParseFields<TensorCase, ParseTensor>, false},
    {"cache", "", ParseOperations<CacheCase, ParseCacheCase>, true, false, false, false},
    {"prefix", "", ParseOperations<PrefixCase, ParsePrefixCase>, true, false, false, false},
}}};

std::string KindNames() {
  std::string names;
  for (const KindText& kind : kKinds.rows) {
    names += names.empty() ? "" : ", ";
    names += kind.name;
  }
  return names;
}

const DataSource& DataOfKind(const CacheCase& c) { return c.setup.data; }
const DataSource& DataOfKind(const PrefixCase& c) { return c.setup.data; }
template <typename C>
const DataSource& DataOfKind(const C& c) {
  return c.data;
}

}  // namespace

std::string_view Name(CaseKind kind) { return kKinds[kind].name; }
bool IsAsked(CaseKind kind) { return kKinds[kind].is_asked; }
bool HasTensors(CaseKind kind) { return kKinds[kind].has_tensors; }
bool HasPlan(CaseKind kind) { return kKinds[kind].has_plan; }
bool HasProfile(CaseKind kind) { return kKinds[kind].has_profile; }

std::optional<CaseKind> FindCaseKind(std::string_view name) {
  for (size_t i = 0; i < kCaseKinds; ++i) {
    if (kKinds.rows[i].name == name) return KindAt(i);
  }
  return std::nullopt;
}

Case ParseCase(std::string_view text) {
  Piece rest = WholeLine(text);
  const Piece kind = TakeWord(&rest);
  if (rest.text.empty()) {
    kind.Refuse("expected KIND and fields, as: attention hq=8 hkv=2 l=1 t=64 d=64 ...");
  }
  const std::optional<CaseKind> found = FindCaseKind(kind.text);
  if (!found) {
    const std::string names = KindNames();
    kind.Refuse(fmt::format("'{}' is not a kind of case{}; kinds: {}", kind.text,
                            DidYouMean(kind.text, names), names));
  }
  const KindText& row = kKinds[*found];
  Case c = row.parse(rest, row.keys);
  Validate(c);
  return c;
}

void Validate(const Case& c) {
  std::visit([](const auto& kind) { ValidateKind(kind); }, c);
}

std::string_view KindName(const Case& c) { return Name(KindOf(c)); }

const DataSource& DataOf(const Case& c) {
  return std::visit([](const auto& kind) -> const DataSource& { return DataOfKind(kind); }, c);
}

}  // namespace kvcheck
