#include "fuzz/draw_trace_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr std::array<std::string_view, 5> kLayouts = {"linear", "linear:w", "ring", "ring:keep",
                                                      "chunk"};

// Whether `text` is the pattern with every `*` replaced by some characters.
bool Matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] != '*') {
    return !text.empty() && text[0] == pattern[0] && Matches(pattern.substr(1), text.substr(1));
  }
  for (size_t skip = 0; skip <= text.size(); ++skip) {
    if (Matches(pattern.substr(1), text.substr(skip))) return true;
  }
  return false;
}

bool Allowed(const std::vector<std::string>& patterns, std::string_view text,
             std::vector<bool>* matched) {
  bool allowed = patterns.empty();
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (!Matches(patterns[i], text)) continue;
    (*matched)[i] = true;
    allowed = true;
  }
  return allowed;
}

void CheckMatched(const std::vector<std::string>& patterns, const std::vector<bool>& matched,
                  std::string_view what) {
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (!matched[i]) {
      throw Error(ErrorCode::kIllegalCase, fmt::format("no {} matches '{}'", what, patterns[i]));
    }
  }
}

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
  if (const auto* affine = std::get_if<AffineFormat>(&format)) return affine->group_size;
  const int64_t bits = std::min(BitsOf(x), BitsOf(RowDType(format)));
  return (46 + bits - 1) / bits;
}

bool Fits(const KvFormat& format, DType x, int64_t dim) {
  const auto* affine = std::get_if<AffineFormat>(&format);
  return dim >= LeastDim(format, x) && (affine == nullptr || dim % affine->group_size == 0);
}

const KvFormat& PickFormat(const std::vector<KvFormat>& formats, Generator* random) {
  const KvFormat* format = &formats[random->Below(formats.size())];
  // Groups of 32 are the cheapest; half of the others are drawn again.
  const auto* affine = std::get_if<AffineFormat>(format);
  if (affine != nullptr && affine->group_size > 32 && random->Below(2) == 0) {
    format = &formats[random->Below(formats.size())];
  }
  return *format;
}

int64_t DrawDim(const KvFormat& format, DType x, bool quantizable, Generator* random) {
  const int64_t least = LeastDim(format, x);
  if (!IsPlain(format)) return random->Below(6) == 0 && least < 128 ? 2 * least : least;
  if (quantizable) return random->Below(5) == 0 ? 64 : 32;
  return std::max(least, random->Below(3) == 0 ? random->Between(3, 17) : 8);
}

}  // namespace

std::span<const std::string_view> DrawnLayouts() { return kLayouts; }

int DrawnLayoutOf(const CacheLayout& layout) {
  switch (layout.kind) {
    case LayoutKind::kLinear:
      return layout.window == 0 ? 0 : 1;
    case LayoutKind::kRing:
      return layout.keep == 0 ? 2 : 3;
    case LayoutKind::kChunk:
      return 4;
  }
  return 0;
}

TraceSpace ReadSpace(const TraceDrawOptions& options) {
  TraceSpace space;
  if (options.max_operations < 1) {
    throw Error(ErrorCode::kIllegalCase, "a trace to be drawn has at least 1 operation");
  }
  std::vector<bool> matched(options.layouts.size());
  for (size_t i = 0; i < kLayouts.size(); ++i) {
    if (Allowed(options.layouts, kLayouts[i], &matched))
      space.layouts.push_back(static_cast<int>(i));
  }
  CheckMatched(options.layouts, matched, "layout");
  matched.assign(options.formats.size(), false);
  for (const KvFormat& format : AllKvFormats()) {
    if (!Allowed(options.formats, Print(format), &matched)) continue;
    (IsPlain(format) ? space.plain : space.affine).push_back(format);
  }
  CheckMatched(options.formats, matched, "format");
  space.rows = options.rows;
  space.max_operations = options.max_operations;
  return space;
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
      space.rows == DrawnRows::kSingle || (space.rows == DrawnRows::kAny && round % 3 == 0);
  drawn->large = random->Below(50) == 0;
  const uint64_t x = random->Below(8);
  setup.x = x < 4 ? DType::kFloat32 : x < 6 ? DType::kFloat16 : DType::kBFloat16;
  // Half of the traces start from plain formats alone, a third of which can be quantized.
  const bool plain = space.affine.empty() || (!space.plain.empty() && random->Below(2) == 0);
  const bool quantizable = plain && !space.affine.empty() && random->Below(3) == 0;
  const auto pick = [&] {
    const bool other = !space.plain.empty() && !space.affine.empty() && random->Below(5) == 0;
    return PickFormat(plain || other ? space.plain : space.affine, random);
  };
  setup.k = plain ? PickFormat(space.plain, random) : PickFormat(space.affine, random);
  setup.v = random->Below(5) < 3 ? setup.k : pick();
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
  setup.query_heads = setup.kv_heads * random->Between(1, 2);
  setup.growth_tokens = random->Below(4) == 0 ? random->Between(5, 16) : random->Between(1, 4);
  setup.observe = random->Below(4) == 0 ? Observe::kLast : Observe::kEach;
  setup.data = {"tokens", random->Below(uint64_t{1} << 32), ""};
  drawn->formats.clear();
  for (const std::vector<KvFormat>* formats : {&space.plain, &space.affine}) {
    for (const KvFormat& format : *formats) {
      if (Fits(format, setup.x, setup.k_dim) && Fits(format, setup.x, setup.v_dim)) {
        drawn->formats.push_back(format);
      }
    }
  }
}

}  // namespace kvcheck
