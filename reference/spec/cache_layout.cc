#include "reference/spec/cache_layout.h"

#include <fmt/format.h>

#include <limits>

#include "reference/spec/near_name.h"

namespace kvcheck {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 31;

// The number of "w=16".
int64_t ParseNumber(Piece piece, std::string_view key) {
  if (piece.text.substr(0, key.size()) != key || piece.text.substr(key.size(), 1) != "=") {
    piece.Refuse(fmt::format("expected {}=NUMBER", key));
  }
  return ParseInt({piece.text.substr(key.size() + 1), piece.whole}, 0, kMaxTokens);
}

}  // namespace

std::string Print(const CacheLayout& layout) {
  switch (layout.kind) {
    case LayoutKind::kLinear:
      return layout.window == 0 ? "linear" : fmt::format("linear:w={}", layout.window);
    case LayoutKind::kRing:
      return layout.keep == 0 ? fmt::format("ring:w={}", layout.window)
                              : fmt::format("ring:w={}:keep={}", layout.window, layout.keep);
    case LayoutKind::kChunk:
      return fmt::format("chunk:c={}", layout.chunk);
  }
  return "";
}

CacheLayout ParseCacheLayout(Piece piece) {
  const std::vector<Piece> parts = Split(piece, ':');
  const std::string_view name = parts[0].text;
  const auto expect = [&](size_t lowest, size_t highest, std::string_view form) {
    if (parts.size() < lowest || parts.size() > highest) {
      piece.Refuse(fmt::format("expected {}", form));
    }
  };
  CacheLayout layout;
  if (name == "linear") {
    expect(1, 2, "linear or linear:w=W");
    if (parts.size() == 2) {
      layout.window = ParseNumber(parts[1], "w");
      if (layout.window == 0) parts[1].Refuse("a window holds at least 1 token");
    }
    return layout;
  }
  if (name == "ring") {
    expect(2, 3, "ring:w=W or ring:w=W:keep=K");
    layout.kind = LayoutKind::kRing;
    layout.window = ParseNumber(parts[1], "w");
    if (parts.size() == 3) layout.keep = ParseNumber(parts[2], "keep");
    return layout;
  }
  if (name == "chunk") {
    expect(2, 2, "chunk:c=C");
    layout.kind = LayoutKind::kChunk;
    layout.chunk = ParseNumber(parts[1], "c");
    return layout;
  }
  parts[0].Refuse(
      fmt::format("'{}' is not a layout{}; layouts: linear, linear:w=W, ring:w=W:keep=K, chunk:c=C",
                  name, DidYouMean(name, "linear, ring, chunk")));
}

bool IsLegal(const CacheLayout& layout) {
  switch (layout.kind) {
    case LayoutKind::kLinear:
      return layout.window >= 0 && layout.keep == 0 && layout.chunk == 0;
    case LayoutKind::kRing:
      return layout.window >= 1 && layout.keep >= 0 && layout.keep < layout.window &&
             layout.chunk == 0;
    case LayoutKind::kChunk:
      return layout.chunk >= 1 && layout.window == 0 && layout.keep == 0;
  }
  return false;
}

}  // namespace kvcheck
