#include "tools/process/remote_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "reference/spec/error.h"
#include "reference/spec/token_groups.h"
#include "tools/process/wire_planes.h"

namespace kvcheck {
namespace {

// Words of bit rows that one state may have: masks of one column would else grow 64-fold.
constexpr int64_t kMaxMaskWords = int64_t{1} << 23;

KvFormat FormatNamed(const WireValue& value, std::string_view key, const KvFormat& otherwise) {
  const std::optional<WireValue> named = value.Find(key);
  if (!named) return otherwise;
  const std::string text(named->AsText(key));
  try {
    return ParseKvFormat(WholeLine(text));
  } catch (const Error& error) {
    throw WireError(
        fmt::format("'{}' is '{}': {}", key, CleanText(text, 100), CleanText(error.message())));
  }
}

int64_t NumberOf(const WireValue& value, std::string_view key) {
  const std::optional<WireValue> number = value.Find(key);
  return number ? number->AsCount(fmt::format("'{}' of a state", key)) : StepView::kUnknown;
}

Known KnownOf(const WireValue& value, std::string_view key) {
  const std::optional<WireValue> known = value.Find(key);
  if (!known) return Known::kCannotTell;
  return known->AsBool(fmt::format("'{}' of a state", key)) ? Known::kYes : Known::kNo;
}

// One number of at least 0 per row.
bool ReadPerRow(const WireValue& value, std::string_view key, int64_t rows,
                std::vector<int64_t>* numbers) {
  const std::optional<WireValue> list = value.Find(key);
  if (!list) return false;
  *numbers = list->AsIntegers(key);
  numbers->reserve(1);  // a pointer to nothing would say that it cannot be told
  if (static_cast<int64_t>(numbers->size()) != rows) {
    throw WireError(
        fmt::format("'{}' of a state has {} numbers for {} rows", key, numbers->size(), rows));
  }
  for (const int64_t number : *numbers) {
    if (number < 0) throw WireError(fmt::format("'{}' of a state has {}, below 0", key, number));
  }
  return true;
}

// Bytes 0 and 1, eight at a time, as bits; each row of `columns` begins a new word.
void PackBits(std::span<const std::byte> bytes, int64_t columns, std::string_view name,
              std::vector<uint64_t>* words) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  const auto width = static_cast<size_t>(columns);
  const size_t per_row = (width + 63) / 64;
  const size_t rows = width == 0 ? 0 : bytes.size() / width;
  // One at least: a pointer to nothing would say that it cannot be told.
  words->assign(std::max<size_t>(1, rows * per_row), 0);
  uint64_t all = 0;
  for (size_t row = 0; row < rows; ++row) {
    const std::byte* from = bytes.data() + row * width;
    uint64_t* to = words->data() + row * per_row;
    for (size_t c = 0; c < width; c += 8) {
      uint64_t eight = 0;
      if constexpr (std::endian::native == std::endian::little) {
        std::memcpy(&eight, from + c, std::min<size_t>(8, width - c));
      } else {
        for (size_t i = 0; i < std::min<size_t>(8, width - c); ++i) {
          eight |= static_cast<uint64_t>(from[c + i]) << (8 * i);
        }
      }
      all |= eight;
      to[c / 64] |= ((eight & kOnes) * 0x0102040810204080 >> 56) << (c % 64);
    }
  }
  if ((all & ~kOnes) != 0) {
    throw WireError(fmt::format("'{}' of a state has a byte that is neither 0 nor 1", name));
  }
}

}  // namespace

void RemoteState::ReadPart(const WireValue& value, std::string_view name, int64_t dim,
                           const KvFormat& format, const CacheSetup& setup, Part* part) {
  part->format = format;
  part->planes = {};
  part->bytes.clear();
  const std::optional<WireValue> list = value.Find(name);
  if (!list) return;
  part->planes = TokenPlanesOf(format, dim);
  for (const WireArray& array :
       ReadPlanes(*list, name, part->planes, Print(format), rows_, setup.kv_heads, &columns_)) {
    part->bytes.push_back(array.bytes.data());
  }
}

void RemoteState::ReadMasks(const WireValue& value) {
  const auto read = [&](std::string_view name, std::span<const int64_t> before,
                        std::vector<uint64_t>* words) {
    const std::optional<WireValue> mask = value.Find(name);
    if (!mask) return false;
    const WireArray array = mask->AsArray(name);
    const bool fits = array.dtype == DType::kBool && array.rank == before.size() + 1 &&
                      std::equal(before.begin(), before.end(), array.extents);
    if (!fits) {
      throw WireError(fmt::format("'{}' of a state is {}; it belongs to {} rows and {} queries",
                                  name, ShapeText(array), rows_, queries_));
    }
    TakeColumns(array.extents[array.rank - 1], name, &columns_);
    if (k_.bytes.empty() || v_.bytes.empty()) {
      throw WireError(fmt::format("a state has '{}' and does not show 'k' and 'v'", name));
    }
    const int64_t bits = static_cast<int64_t>(array.bytes.size());
    const int64_t rows = columns_ == 0 ? 0 : bits / columns_;
    if (rows * ((columns_ + 63) / 64) > kMaxMaskWords) {
      throw WireError(fmt::format("'{}' of a state has {} rows: too many", name, rows));
    }
    PackBits(array.bytes, columns_, name, words);
    return true;
  };
  const std::array<int64_t, 2> of_queries = {rows_, queries_};
  has_visible_ = read("visible", of_queries, &visible_);
  has_retained_ = read("retained", {of_queries.data(), 1}, &retained_);
  const std::optional<WireValue> probed = value.Find("probed");
  probed_ = probed && probed->AsBool("'probed' of a state");
}

void RemoteState::Read(const WireValue& value, std::shared_ptr<const Message> bytes,
                       const CacheSetup& setup, const KvFormat& k, const KvFormat& v) {
  bytes_ = std::move(bytes);
  kv_heads_ = setup.kv_heads;
  columns_ = -1;
  rows_ = value.Get("rows").AsCount("'rows' of a state");
  queries_ = value.Get("queries").AsCount("'queries' of a state");
  layout_.reset();
  if (const std::optional<WireValue> layout = value.Find("layout")) {
    const std::string text(layout->AsText("'layout' of a state"));
    try {
      layout_ = ParseCacheLayout(WholeLine(text));
    } catch (const Error& error) {
      throw WireError(
          fmt::format("'layout' is '{}': {}", CleanText(text, 100), CleanText(error.message())));
    }
  }
  ReadPart(value, "k", setup.k_dim, FormatNamed(value, "k_format", k), setup, &k_);
  ReadPart(value, "v", setup.v_dim, FormatNamed(value, "v_format", v), setup, &v_);
  ReadMasks(value);
  columns_ = std::max<int64_t>(0, columns_);
  has_offsets_ = ReadPerRow(value, "offsets", rows_, &offsets_);
  has_unfed_ = ReadPerRow(value, "unfed", rows_, &unfed_);
  has_held_ = ReadPerRow(value, "held", rows_, &held_);
  size_ = NumberOf(value, "size");
  live_bytes_ = NumberOf(value, "live_bytes");
  capacity_bytes_ = NumberOf(value, "capacity_bytes");
  empty_ = KnownOf(value, "empty");
  trimmable_ = KnownOf(value, "trimmable");
  pending_ = KnownOf(value, "pending");
}

StoredVectors RemoteState::Vectors(const Part& part) const {
  StoredVectors vectors;
  vectors.format = part.format;
  for (size_t i = 0; i < part.bytes.size(); ++i) {
    vectors.planes[i] = DensePlane(part.planes[i], part.bytes[i], kv_heads_, columns_);
  }
  return vectors;
}

void RemoteState::Show(StepView* view) const {
  *view = {};
  view->rows = rows_;
  view->columns = columns_;
  view->queries = queries_;
  view->k = Vectors(k_);
  view->v = Vectors(v_);
  if (has_retained_) view->retained = KnownBits(retained_);
  view->probed = probed_ && has_retained_;
  if (has_visible_) view->visible = KnownBits(visible_);
  if (has_offsets_) view->offsets = offsets_.data();
  if (has_unfed_) view->unfed_padding = unfed_.data();
  if (layout_) view->layout = &*layout_;
  view->size = size_;
  view->live_bytes = live_bytes_;
  view->capacity_bytes = capacity_bytes_;
  view->empty = empty_;
  view->trimmable = trimmable_;
  view->pending = pending_;
}

int64_t RemoteState::RetainedTokens(int64_t row) const {
  if (row < 0 || row >= rows_) return StepView::kUnknown;
  const auto b = static_cast<size_t>(row);
  if (has_held_) return held_[b];
  // A probe shows no more than the next query sees: trim may reach further.
  if (!has_retained_ || probed_) return StepView::kUnknown;
  const size_t words = static_cast<size_t>((columns_ + 63) / 64);
  int64_t count = 0;
  for (size_t w = 0; w < words; ++w) count += std::popcount(retained_[b * words + w]);
  return count;
}

}  // namespace kvcheck
