#include "fuzz/draw_trace_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "fuzz/pick_format.h"
#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "reference/spec/token_groups.h"
#include "reference/trace/trace_space.h"

namespace kvcheck {
namespace {

// Errors: kIllegalCase for a pattern that matches none of the texts.
void CheckMatches(const std::vector<std::string>& patterns, const std::vector<std::string>& texts,
                  std::string_view what) {
  for (const std::string& pattern : patterns) {
    if (std::none_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return MatchesGlob(pattern, text); })) {
      throw Error(ErrorCode::kIllegalCase, fmt::format("no {} matches '{}'", what, pattern));
    }
  }
}

// Types of vectors, the cheapest as often as the others together.
constexpr std::array<std::pair<DType, uint64_t>, 3> kTypes = {
    {{DType::kFloat32, 4}, {DType::kFloat16, 2}, {DType::kBFloat16, 2}}};

// Bits of one channel that differ from token to token, at least, as numbers uniform in (-2, 2) keep
// them (token_rows.h): -log2 of the probability that two are equal.
int64_t BitsOf(DType type) {
  switch (type) {
    case DType::kFloat64:
    case DType::kFloat32:
      return 23;
    case DType::kFloat16:
      return 11;
    case DType::kBFloat16:
      return 8;
    case DType::kFloat8E4M3FN:
      return 5;
    default:
      return 4;  // f8e5m2
  }
}

// Channels with which tokens have different bytes for certain enough: 46 bits keep the 2^17 pairs
// of vectors of a long trace apart in all but one of 2^29 traces.
int64_t LeastDim(const KvFormat& format, DType x) {
  if (!IsPlain(format)) {
    const KvFormat token = TokenFormatOf(format);
    const auto of_block = 8 * static_cast<int64_t>(PlanesOf(token, BlockOf(token))[0].Bytes());
    return BlockOf(token) * ((46 + of_block - 1) / of_block);
  }
  const int64_t bits = std::min(BitsOf(x), BitsOf(RowDType(format)));
  return (46 + bits - 1) / bits;
}

bool Fits(const KvFormat& format, DType x, int64_t dim) {
  return dim >= LeastDim(format, x) && FitsTokens(format, dim);
}

const TypedFormats& PickType(const std::vector<TypedFormats>& types, Generator* random) {
  uint64_t total = 0;
  for (const TypedFormats& type : types) total += type.weight;
  uint64_t at = random->Below(total);
  for (const TypedFormats& type : types) {
    if (at < type.weight) return type;
    at -= type.weight;
  }
  return types.back();
}

const KvFormat& DrawnFormat(const std::vector<KvFormat>& formats, Generator* random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random->Below(n)); };
  const KvFormat* format = &PickFormat(formats, below);
  // Groups of 32 are the cheapest; half of the others are drawn again.
  if (BlockOf(*format) > 32 && random->Below(2) == 0) format = &PickFormat(formats, below);
  return *format;
}

int64_t DrawDim(const KvFormat& format, DType x, bool quantizable, Generator* random) {
  const int64_t least = LeastDim(format, x);
  if (!IsPlain(format)) return random->Below(6) == 0 && least < 128 ? 2 * least : least;
  if (quantizable) return random->Below(5) == 0 ? 64 : 32;
  return std::max(least, random->Below(3) == 0 ? random->Between(3, 17) : 8);
}

// What the options leave of the space; nullopt: nothing.
std::optional<TraceSpace> Intersect(const CacheSpace& space, const TraceDrawOptions& options) {
  TraceSpace left;
  for (size_t i = 0; i < LayoutVariants().size(); ++i) {
    if (MatchesAnyGlob(options.layouts, LayoutVariants()[i]) &&
        MatchesAnyGlob(space.layouts, LayoutVariants()[i])) {
      left.layouts.push_back(static_cast<int>(i));
    }
  }
  for (const auto& [x, weight] : kTypes) {
    TypedFormats typed{x, weight, {}, {}};
    for (const KvFormat& format : CacheFormats()) {
      if (!space.HasFormats(x, format, format)) continue;
      if (!NamesCacheFormat(options.formats, format)) continue;
      (IsPlain(format) ? typed.plain : typed.coded).push_back(format);
    }
    for (const auto& [k, v] : space.pairs) {
      if (!space.HasFormats(x, k, v) || RowDType(k) != x) continue;
      if (!NamesCacheFormat(options.formats, k)) continue;
      if (std::find(typed.coded.begin(), typed.coded.end(), k) == typed.coded.end()) {
        typed.coded.push_back(k);
      }
    }
    if (!typed.plain.empty() || !typed.coded.empty()) left.types.push_back(std::move(typed));
  }
  left.same_format = space.same_format;
  left.pairs = space.pairs;
  left.rows = space.rows == SpaceRows::kAny ? options.rows : space.rows;
  left.padding = space.padding;
  left.same_dims = space.same_dims;
  left.grouped = space.grouped;
  left.empty_batch = space.empty_batch;
  left.window = space.window;
  left.sinks = space.sinks;
  left.operations = space.operations;
  for (int i = 0; i < kDamageKinds; ++i) {
    if (space.Has(static_cast<Damage>(i))) left.damages.push_back(static_cast<Damage>(i));
  }
  if (left.damages.empty()) left.operations &= ~(1u << static_cast<int>(CacheOpKind::kDamage));
  left.max_operations = options.max_operations;
  // Every trace begins with a cache that tokens are appended to.
  const bool begins = space.Has(CacheOpKind::kNew) && space.Has(CacheOpKind::kAppend);
  const bool rows_agree = options.rows == SpaceRows::kAny || options.rows == left.rows;
  if (left.layouts.empty() || left.types.empty() || !begins || !rows_agree) return std::nullopt;
  return left;
}

}  // namespace

std::vector<TraceSpace> ReadSpaces(const TraceDrawOptions& options) {
  if (options.max_operations < 1) {
    throw Error(ErrorCode::kIllegalCase, "a trace to be drawn has at least 1 operation");
  }
  CheckMatches(options.layouts, {LayoutVariants().begin(), LayoutVariants().end()}, "layout");
  std::vector<std::string> formats;
  for (const KvFormat& format : CacheFormats()) formats.push_back(Print(format));
  CheckMatches(options.formats, formats, "format");
  if (options.spaces.empty()) return {*Intersect({}, options)};
  std::vector<TraceSpace> spaces;
  for (const CacheSpace& space : options.spaces) {
    if (std::optional<TraceSpace> left = Intersect(space, options)) spaces.push_back(*left);
  }
  if (spaces.empty()) {
    std::vector<std::string> texts;
    for (const CacheSpace& space : options.spaces) texts.push_back(Describe(space));
    throw Error(ErrorCode::kUsage,
                fmt::format("the implementation has no caches of this kind; what it has: {}",
                            fmt::join(texts, " | ")));
  }
  return spaces;
}

std::optional<KvFormat> ValueBeside(const TraceSpace& space, const KvFormat& k, Generator* random) {
  if (space.pairs.empty()) return space.same_format ? std::optional(k) : std::nullopt;
  std::vector<KvFormat> values;
  for (const auto& [key, value] : space.pairs) {
    if (key == k) values.push_back(value);
  }
  if (values.empty()) return k;
  return values[values.size() == 1 ? 0 : static_cast<size_t>(random->Below(values.size()))];
}

CacheLayout DrawLayout(int kind, Generator* random) {
  CacheLayout layout;
  const int64_t size = random->Below(12) == 0 ? random->Between(7, 20) : random->Between(1, 6);
  switch (kind) {
    case 0:
      break;
    case 1:
      layout.window = size;
      break;
    case 2:
      layout.kind = LayoutKind::kRing;
      layout.window = size;
      break;
    case 3:
      layout.kind = LayoutKind::kRing;
      layout.window = std::max<int64_t>(2, size);
      layout.keep = random->Between(1, std::min<int64_t>(layout.window - 1, 4));
      break;
    default:
      layout.kind = LayoutKind::kChunk;
      layout.chunk = size;
  }
  return layout;
}

void DrawSetup(const TraceSpace& space, uint64_t index, Generator* random, DrawnSetup* drawn) {
  CacheSetup& setup = drawn->setup;
  setup = {};
  setup.layout = DrawLayout(space.layouts[index % space.layouts.size()], random);
  const uint64_t round = index / space.layouts.size();
  drawn->single =
      space.rows == SpaceRows::kSingle || (space.rows == SpaceRows::kAny && round % 3 == 0);
  drawn->large = random->Below(50) == 0;
  const TypedFormats& formats = PickType(space.types, random);
  setup.x = formats.x;
  // Half of the traces start from plain formats alone, a third of which can be quantized.
  const bool plain = formats.coded.empty() || (!formats.plain.empty() && random->Below(2) == 0);
  const bool quantizable = plain && !formats.coded.empty() && random->Below(3) == 0;
  const auto pick = [&] {
    const bool other = !formats.plain.empty() && !formats.coded.empty() && random->Below(5) == 0;
    return DrawnFormat(plain || other ? formats.plain : formats.coded, random);
  };
  setup.k = plain ? DrawnFormat(formats.plain, random) : DrawnFormat(formats.coded, random);
  setup.v = random->Below(5) < 3 ? setup.k : pick();
  setup.v = ValueBeside(space, setup.k, random).value_or(setup.v);
  // Other layouts refuse groups of tokens, which a trace need not show often.
  const bool has_linear =
      std::find(space.layouts.begin(), space.layouts.end(), 0) != space.layouts.end();
  const bool keeps = KeepsGroups(setup.layout, setup.k) && KeepsGroups(setup.layout, setup.v);
  if (!keeps && has_linear && random->Below(8) != 0) setup.layout = {};
  const bool wide = quantizable || !plain;
  setup.k_dim = DrawDim(setup.k, setup.x, wide, random);
  setup.v_dim = DrawDim(setup.v, setup.x, wide, random);
  const uint64_t heads = random->Below(10);
  setup.kv_heads = heads < 4 ? 1 : heads < 9 ? 2 : 3;
  if (drawn->large && random->Below(12) == 0) {
    // Rows of some hundred KB: beyond what is moved, held or kept at a time.
    setup.kv_heads = 3;
    if (IsPlain(setup.k)) setup.k_dim = random->Between(96, 128);
    if (IsPlain(setup.v)) setup.v_dim = random->Between(96, 128);
  }
  if (space.same_dims) {
    // Groups are powers of two; a plain operand takes what a coded one has.
    const int64_t coded =
        std::max(IsPlain(setup.k) ? 0 : setup.k_dim, IsPlain(setup.v) ? 0 : setup.v_dim);
    setup.k_dim = setup.v_dim = coded > 0 ? coded : std::max(setup.k_dim, setup.v_dim);
  }
  setup.query_heads = setup.kv_heads * random->Between(1, 2);
  if (!space.grouped) setup.query_heads = setup.kv_heads;
  setup.growth_tokens = random->Below(4) == 0 ? random->Between(5, 16) : random->Between(1, 4);
  setup.observe = random->Below(4) == 0 ? Observe::kLast : Observe::kEach;
  setup.data = {"tokens", random->Below(uint64_t{1} << 32), ""};
  drawn->formats.clear();
  for (const std::vector<KvFormat>* list : {&formats.plain, &formats.coded}) {
    for (const KvFormat& format : *list) {
      if (Fits(format, setup.x, setup.k_dim) && Fits(format, setup.x, setup.v_dim)) {
        drawn->formats.push_back(format);
      }
    }
  }
}

}  // namespace kvcheck
