#include "reference/spec/channel_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "reference/spec/plain_format.h"
#include "reference/spec/row_type.h"

namespace kvcheck {
namespace {

constexpr std::array<int, 3> kBits = {2, 4, 8};
constexpr std::array<int64_t, 3> kGroups = {8, 32, 128};  // that are drawn
constexpr int64_t kLargestGroup = 1024;
constexpr int64_t kLargestResidual = int64_t{1} << 20;
constexpr const char* kWritten =
    "a format per channel is written channel:BITS:gTOKENS[:rRESIDUAL]:ROW_TYPE, as "
    "channel:2:g32:r128:f16";

bool IsGroup(int64_t group) {
  return group >= 1 && group <= kLargestGroup && (group & (group - 1)) == 0;
}

// Beside the group itself. A group of one token has none: it is coded when it comes.
bool IsResidual(int64_t residual, int64_t group) {
  return group > 1 && residual > group && residual % group == 0 && residual <= kLargestResidual;
}

bool IsBits(int64_t bits) { return std::find(kBits.begin(), kBits.end(), bits) != kBits.end(); }

// The number after the first letter.
int64_t NumberOf(const Piece& part) {
  return ParseInt({part.text.substr(1), part.whole}, 0, int64_t{1} << 30);
}

}  // namespace

std::optional<ChannelFormat> ChannelFormat::Parse(Piece piece, const std::vector<Piece>& parts,
                                                  bool* has_row_type) {
  if (parts[0].text != Names()) return std::nullopt;
  if (parts.size() < 3) piece.Refuse(kWritten);
  ChannelFormat format;
  const int64_t bits = ParseInt(parts[1], 0, 64);
  if (!IsBits(bits)) parts[1].Refuse("bits per channel are 2, 4 or 8");
  format.bits = static_cast<int>(bits);
  if (parts[2].text.substr(0, 1) != "g") parts[2].Refuse("a group of tokens is written g32");
  format.group = NumberOf(parts[2]);
  if (!IsGroup(format.group)) parts[2].Refuse("a group of tokens is a power of two, 1 to 1024");
  size_t taken = 3;
  if (parts.size() > 3 && parts[3].text.substr(0, 1) == "r") {
    format.residual = NumberOf(parts[3]);
    if (!IsResidual(format.residual, format.group)) {
      parts[3].Refuse(
          "a residual is a larger multiple of the group, up to 1048576; left out, it "
          "is the group");
    }
    ++taken;
  }
  format.row_type = ParseRowType(piece, parts, taken, kWritten, has_row_type);
  return format;
}

std::vector<ChannelFormat> ChannelFormat::All() {
  std::vector<ChannelFormat> formats;
  for (const int bits : kBits) {
    for (const int64_t group : kGroups) {
      for (const DType type : kRowTypes) formats.push_back({bits, group, 0, type});
    }
  }
  return formats;
}

bool ChannelFormat::Exists() const {
  return IsBits(bits) && IsGroup(group) && IsRowType(row_type) &&
         (residual == 0 || IsResidual(residual, group));
}

std::string ChannelFormat::Text() const {
  const std::string kept = residual == 0 ? "" : fmt::format(":r{}", residual);
  return fmt::format("channel:{}:g{}{}:{}", bits, group, kept, ShortName(row_type));
}

std::string ChannelFormat::Kind() const { return fmt::format("channel:{}", bits); }

int64_t ChannelFormat::Block() const { return std::max<int64_t>(group, 32 / bits); }

DType ChannelFormat::RangeType() const {
  // The range of a group is up to twice its largest magnitude.
  return row_type == DType::kFloat16 ? DType::kFloat8E4M3FN : DType::kFloat16;
}

Planes ChannelFormat::PlanesOf(int64_t row_elements) const {
  const int64_t channels = row_elements / group;
  Planes planes;
  planes.Add({"codes", DType::kUInt32, "W", row_elements * bits / 32});
  planes.Add({"scales", row_type, "G", channels});
  planes.Add({"zeros", row_type, "G", channels});
  return planes;
}

int64_t ChannelFormat::Rank() const {
  return 20 + 2 * std::abs(bits - 4) + Residual() + group + RankOf(row_type);
}

std::vector<ChannelFormat> ChannelFormat::Simpler() const {
  std::vector<ChannelFormat> simpler = {
      {4, 8, 0, DType::kFloat16}, {4, group, residual, row_type}, {bits, 8, 0, row_type}};
  if (residual != 0) simpler.push_back({bits, group, 0, row_type});
  return simpler;
}

}  // namespace kvcheck
