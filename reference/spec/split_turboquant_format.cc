#include "reference/spec/split_turboquant_format.h"

#include <fmt/format.h>

#include <bit>
#include <cstdlib>

#include "reference/spec/plain_format.h"
#include "reference/spec/row_type.h"

namespace kvcheck {
namespace {

constexpr std::string_view kHalf = ".5";
constexpr std::string_view kWritten =
    "turboquant with half a bit is written turboquant:BITS.5:gGROUP[:CODEBOOK]:hHIGH[:sSEED]:"
    "ROW_TYPE, as turboquant:3.5:g64:ha53cc35affff0000:f16";
constexpr int64_t kLargestSeed = 0x7fffffff - SplitTurboquantFormat::kHighSeed;

int HighChannels(const ChannelBits& words) {
  int count = 0;
  for (const uint32_t word : words) count += std::popcount(word);
  return count;
}

bool StartsWith(const std::vector<Piece>& parts, size_t at, char letter) {
  return at < parts.size() && parts[at].text.size() > 1 && parts[at].text[0] == letter;
}

// What follows the first letter.
Piece AfterLetter(Piece part) { return {part.text.substr(1), part.whole}; }

// Words whose halves are distributed unevenly: 24 of one, 8 of the next.
constexpr ChannelBits kUneven = {0xffff0f0f, 0x00f0000f};
constexpr ChannelBits kEven = {0xa53cc35a, 0x5ac3a53c, 0xffff0000, 0x00ff33cc};

}  // namespace

std::optional<SplitTurboquantFormat> SplitTurboquantFormat::Parse(Piece piece,
                                                                  const std::vector<Piece>& parts,
                                                                  bool* has_row_type) {
  if (parts[0].text != Names() || parts.size() < 2) return std::nullopt;
  const std::string_view number = parts[1].text;
  if (number.find('.') == number.npos) return std::nullopt;
  if (!number.ends_with(kHalf)) parts[1].Refuse("bits between whole ones are 1.5, 2.5, 3.5, 4.5");
  SplitTurboquantFormat format;
  format.bits = static_cast<int>(
      ParseInt({number.substr(0, number.size() - kHalf.size()), parts[1].whole}, 0, 64));
  if (format.bits < 1 || format.bits > 4) parts[1].Refuse("turboquant bits are 1.5 to 4.5");
  if (!StartsWith(parts, 2, 'g')) piece.Refuse(kWritten);
  const int64_t group = ParseInt(AfterLetter(parts[2]), 0, int64_t{1} << 20);
  if (group != 64 && group != 128 && group != 256 && group != 512) {
    parts[2].Refuse("groups of turboquant with half a bit are g64, g128, g256 or g512");
  }
  format.group_size = static_cast<int>(group);
  size_t at = 3;
  const auto codebook = at < parts.size() ? TurboquantCodebookNamed(parts[at].text) : std::nullopt;
  if (codebook) {
    format.codebook = *codebook;
    if (!format.Low().Exists() || !format.High().Exists()) {
      parts[at].Refuse(
          "there is no such set of centroids for both halves: of the bits below and above, and of "
          "half the group");
    }
    ++at;
  }
  if (!StartsWith(parts, at, 'h')) {
    piece.Refuse(
        "which channels have the higher bits is data: h and a bit for each channel, in words of 8 "
        "hexadecimal digits");
  }
  format.high =
      ParseChannelBits(AfterLetter(parts[at]), format.group_size, "channels of more bits");
  if (HighChannels(format.high) != format.group_size / 2) {
    parts[at].Refuse(fmt::format("half of the channels have the higher bits: {} of {}, not {}",
                                 format.group_size / 2, format.group_size,
                                 HighChannels(format.high)));
  }
  ++at;
  if (StartsWith(parts, at, 's')) {
    format.seed = ParseInt(AfterLetter(parts[at]), 0, kLargestSeed);
    ++at;
  }
  format.row_type = ParseRowType(piece, parts, at, kWritten, has_row_type);
  return format;
}

std::vector<SplitTurboquantFormat> SplitTurboquantFormat::All() {
  std::vector<SplitTurboquantFormat> formats;
  for (const int low : {1, 2, 3}) {
    formats.push_back({low, 64, TurboquantCodebook::kExact, 0, DType::kFloat32, kUneven});
    formats.push_back({low, 128, TurboquantCodebook::kMlxVlm, 1, DType::kFloat16, kEven});
  }
  formats.push_back({4, 64, TurboquantCodebook::kExact, 1, DType::kBFloat16, kUneven});
  return formats;
}

bool SplitTurboquantFormat::Exists() const {
  for (size_t word = static_cast<size_t>(group_size) / 32; word < high.size(); ++word) {
    if (high[word] != 0) return false;
  }
  return bits >= 1 && bits <= 4 && group_size >= 64 && seed >= 0 && seed <= kLargestSeed &&
         Low().Exists() && High().Exists() && HighChannels(high) == group_size / 2;
}

std::string SplitTurboquantFormat::Text() const {
  std::string text = fmt::format("turboquant:{}{}:g{}", bits, kHalf, group_size);
  if (codebook != TurboquantCodebook::kExact) text += fmt::format(":{}", NameOf(codebook));
  text += ":h" + PrintChannelBits(high, group_size);
  if (seed > 0) text += fmt::format(":s{}", seed);
  return text + fmt::format(":{}", ShortName(row_type));
}

std::string SplitTurboquantFormat::Kind() const {
  return fmt::format("turboquant:{}{}", bits, kHalf);
}

Planes SplitTurboquantFormat::PlanesOf(int64_t head_dim) const {
  const Planes low = Low().PlanesOf(head_dim / 2), high_half = High().PlanesOf(head_dim / 2);
  Planes planes;
  for (size_t i = 0; i < low.size(); ++i) {
    Plane both = low[i];
    both.elements += high_half[i].elements;
    planes.Add(both);
  }
  return planes;
}

int64_t SplitTurboquantFormat::Rank() const { return 400 + Low().Rank(); }

std::vector<SplitTurboquantFormat> SplitTurboquantFormat::Simpler() const {
  return {{3, 64, TurboquantCodebook::kExact, 0, DType::kFloat32, kUneven},
          {bits, 64, TurboquantCodebook::kExact, 0, row_type, kUneven},
          {bits, group_size, TurboquantCodebook::kExact, 0, row_type, high}};
}

}  // namespace kvcheck
