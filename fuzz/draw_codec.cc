#include "fuzz/draw_codec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fuzz/pick_format.h"
#include "reference/data/generator.h"
#include "reference/data/row_regime.h"
#include "reference/spec/error.h"
#include "reference/spec/glob.h"

namespace kvcheck {
namespace {

// In the order in which draws count them.
constexpr CodecDirection kDirections[] = {CodecDirection::kEncode, CodecDirection::kDecode,
                                          CodecDirection::kRoundTrip};
constexpr DType kRowTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64};

template <typename T>
bool IsAmong(const std::vector<T>& values, const T& value) {
  return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

CodecDrawer::CodecDrawer(const CodecDrawOptions& options) {
  std::vector<CodecSpace> spaces = options.spaces;
  if (spaces.empty()) spaces.emplace_back();
  std::vector<std::string> texts;
  for (const CodecSpace& space : spaces) {
    texts.push_back(Describe(space));
    Space left;
    for (const KvFormat& format : AllKvFormats()) {
      if (IsAmong(options.formats, format) && MatchesAnyGlob(space.formats, Print(format))) {
        left.formats.push_back(format);
      }
    }
    for (const CodecDirection direction : kDirections) {
      if (IsAmong(space.directions, direction)) left.directions.push_back(direction);
    }
    for (const DType x : kRowTypes) {
      if (IsAmong(space.x, x)) left.x.push_back(x);
    }
    if (!left.formats.empty() && !left.directions.empty() && !left.x.empty()) {
      spaces_.push_back(std::move(left));
    }
  }
  if (spaces_.empty()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the implementation has no codec of this kind; what it has: {}",
                            fmt::join(texts, " | ")));
  }
}

CodecCase CodecDrawer::Draw(uint64_t seed, uint64_t index) const {
  const Space& space = spaces_[index % spaces_.size()];
  Generator random(seed, "fuzz codec", index);
  const auto below = [&](size_t n) { return static_cast<size_t>(random.Below(n)); };
  CodecCase c;
  c.direction = space.directions[below(space.directions.size())];
  c.format = PickFormat(space.formats, below);
  c.x = space.x[below(space.x.size())];
  c.rows = below(4) == 0 ? 1 + static_cast<int64_t>(below(40)) : 1 + static_cast<int64_t>(below(4));
  const auto blocks = 1 + static_cast<int64_t>(below(IsPlain(c.format) ? 130 : 5));
  c.head_dim = blocks * BlockOf(c.format);
  const auto regimes = RowRegimes();
  const bool decodes = c.direction == CodecDirection::kDecode;
  const size_t regime = below(regimes.size() + (decodes ? 3 : 0));
  c.data.regime = regime < regimes.size() ? std::string(regimes[regime]) : "codes";
  c.data.seed = below(1'000'000);
  return c;
}

}  // namespace kvcheck
