#include "reference/spec/turboquant_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "reference/spec/enum_text.h"
#include "reference/spec/plain_format.h"

namespace kvcheck {
namespace {

constexpr int kLeastGroup = 32;
constexpr int kLargestGroup = 512;
constexpr int64_t kLargestSeed = 0x7fffffff;
constexpr std::array<DType, 3> kTurboquantRowTypes = {DType::kFloat32, DType::kFloat16,
                                                      DType::kBFloat16};
constexpr EnumNames<TurboquantCodebook, 3> kCodebooks = {{{TurboquantCodebook::kExact, "exact"},
                                                          {TurboquantCodebook::kMlxVlm, "mlx_vlm"},
                                                          {TurboquantCodebook::kVllm, "vllm"}}};

bool IsRowType(DType type) {
  return std::find(kTurboquantRowTypes.begin(), kTurboquantRowTypes.end(), type) !=
         kTurboquantRowTypes.end();
}

bool IsPowerOfTwo(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// What the two libraries' sets hold.
bool HasCodebook(TurboquantCodebook codebook, int bits, int group) {
  switch (codebook) {
    case TurboquantCodebook::kMlxVlm:
      return bits <= 4 && group <= 256;
    case TurboquantCodebook::kVllm:
      return (bits == 3 || bits == 4) && group >= 64 && group <= 256;
    default:
      return true;
  }
}

constexpr std::string_view kHexDigits = "0123456789abcdef";

bool IsGivenSigns(std::string_view text) {
  return text.size() > 1 && text[0] == 'w' && text.find_first_not_of(kHexDigits, 1) == text.npos;
}

bool IsSigns(std::string_view text) {
  return text == "plain" || IsGivenSigns(text) ||
         (text.size() > 1 && text[0] == 's' &&
          text.find_first_not_of("0123456789", 1) == text.npos);
}

int ParseGroup(Piece piece) {
  if (piece.text.substr(0, 1) != "g") piece.Refuse("a group is written g32, g64, g128, ...");
  const auto group =
      static_cast<int>(ParseInt({piece.text.substr(1), piece.whole}, 0, int64_t{1} << 20));
  if (!IsPowerOfTwo(group)) {
    int64_t divisor = 1;
    while (group > 0 && group % (2 * divisor) == 0) divisor *= 2;
    const std::string rule =
        "the Hadamard rotation needs a group of a power of two that divides head_dim, g32 to g512";
    if (divisor < kLeastGroup) {
      piece.Refuse(
          fmt::format("{}: none divides {}, and rows of such a head_dim are not kept in "
                      "this format without padding",
                      rule, group));
    }
    piece.Refuse(fmt::format("{}: for head_dim {} write g{}", rule, group,
                             std::min<int64_t>(divisor, kLargestGroup)));
  }
  if (group < kLeastGroup || group > kLargestGroup) {
    piece.Refuse("turboquant groups are g32, g64, g128, g256 or g512");
  }
  return group;
}

}  // namespace

std::string_view NameOf(TurboquantCodebook codebook) { return NameIn(kCodebooks, codebook); }

std::optional<TurboquantCodebook> TurboquantCodebookNamed(std::string_view text) {
  const auto named = std::find_if(kCodebooks.begin(), kCodebooks.end(),
                                  [&](const auto& entry) { return entry.second == text; });
  if (named == kCodebooks.end()) return std::nullopt;
  return named->first;
}

std::string PrintChannelBits(const ChannelBits& words, int channels) {
  std::string text;
  for (int i = 0; i < channels / 32; ++i)
    text += fmt::format("{:08x}", words[static_cast<size_t>(i)]);
  return text;
}

ChannelBits ParseChannelBits(Piece digits, int channels, std::string_view what) {
  if (static_cast<int>(digits.text.size()) != channels / 4 ||
      digits.text.find_first_not_of(kHexDigits) != digits.text.npos) {
    digits.Refuse(fmt::format("{} are {} words of 8 hexadecimal digits", what, channels / 32));
  }
  ChannelBits words{};
  for (size_t i = 0; i < digits.text.size(); ++i) {
    words[i / 8] = words[i / 8] << 4 | static_cast<uint32_t>(kHexDigits.find(digits.text[i]));
  }
  return words;
}

// has_row_type: null where the text must name the row type.
std::optional<TurboquantFormat> TurboquantFormat::Parse(Piece piece,
                                                        const std::vector<Piece>& parts,
                                                        bool* has_row_type) {
  if (parts[0].text != "turboquant") return std::nullopt;
  if (parts.size() < 3) {
    piece.Refuse("a turboquant format is written " + std::string(Grammar()) +
                 ", as turboquant:4:g128:bf16");
  }
  TurboquantFormat format;
  format.bits = static_cast<int>(ParseInt(parts[1], 0, 64));
  if (format.bits < 1 || format.bits > 5) parts[1].Refuse("turboquant bits are 1 to 5");
  format.group_size = ParseGroup(parts[2]);
  size_t at = 3;
  const auto codebook = at < parts.size() ? TurboquantCodebookNamed(parts[at].text) : std::nullopt;
  if (codebook) {
    format.codebook = *codebook;
    if (!HasCodebook(format.codebook, format.bits, format.group_size)) {
      parts[at].Refuse(
          "there is no such set of centroids: mlx_vlm has 1 to 4 bits and groups up to 256, vllm 3 "
          "and 4 bits and groups from 64 to 256");
    }
    ++at;
  }
  if (at < parts.size() && IsSigns(parts[at].text)) {
    const Piece number = {parts[at].text.substr(1), parts[at].whole};
    if (parts[at].text == "plain") {
      format.seed = kPlainHadamard;
    } else if (IsGivenSigns(parts[at].text)) {
      format.seed = kGivenSigns;
      format.signs = ParseChannelBits(number, format.group_size, "given signs");
    } else {
      format.seed = ParseInt(number, 0, kLargestSeed);
    }
    ++at;
  }
  const bool named = at < parts.size();
  if (!named && has_row_type == nullptr) {
    piece.Refuse("a turboquant format ends in the type of its rows: f32, f16 or bf16");
  }
  if (has_row_type != nullptr) *has_row_type = named;
  if (!named) return format;
  const auto type = ParseDType(parts[at].text);
  if (!type || !IsRowType(*type)) {
    parts[at].Refuse(
        "after the group come a codebook (exact, mlx_vlm, vllm), signs (sSEED, plain, wWORDS) and "
        "the type of rows (f32, f16, bf16), in this order");
  }
  if (at + 1 < parts.size()) parts[at + 1].Refuse("the type of rows comes last");
  format.row_type = *type;
  return format;
}

// Some of each kind: there are 2^31 seeds. V has the seed after K's in mlx-vlm.
std::vector<TurboquantFormat> TurboquantFormat::All() {
  std::vector<TurboquantFormat> formats;
  for (int bits = 1; bits <= 5; ++bits) {
    for (const int group : {32, 64, 128}) {
      formats.push_back({bits, group, TurboquantCodebook::kExact, 0, DType::kFloat32});
      formats.push_back({bits, group, TurboquantCodebook::kExact, 1, DType::kFloat16});
      if (HasCodebook(TurboquantCodebook::kMlxVlm, bits, group)) {
        formats.push_back({bits, group, TurboquantCodebook::kMlxVlm, 1, DType::kBFloat16});
      }
      if (group == 128 && HasCodebook(TurboquantCodebook::kVllm, bits, group)) {
        formats.push_back(
            {bits, group, TurboquantCodebook::kVllm, kPlainHadamard, DType::kBFloat16});
      }
    }
  }
  formats.push_back(
      {2, 64, TurboquantCodebook::kExact, kGivenSigns, DType::kFloat32, {0xc0ffee11, 0x5eed0123}});
  return formats;
}

bool TurboquantFormat::Exists() const {
  const size_t words = seed == kGivenSigns ? static_cast<size_t>(group_size) / 32 : 0;
  for (size_t i = words; i < signs.size(); ++i) {
    if (signs[i] != 0) return false;
  }
  return bits >= 1 && bits <= 5 && IsPowerOfTwo(group_size) && group_size >= kLeastGroup &&
         group_size <= kLargestGroup && HasCodebook(codebook, bits, group_size) &&
         seed >= kGivenSigns && seed <= kLargestSeed && IsRowType(row_type);
}

std::string TurboquantFormat::Text() const {
  std::string text = fmt::format("turboquant:{}:g{}", bits, group_size);
  if (codebook != TurboquantCodebook::kExact) text += fmt::format(":{}", NameOf(codebook));
  if (seed == kPlainHadamard) text += ":plain";
  if (seed > 0) text += fmt::format(":s{}", seed);
  if (seed == kGivenSigns) text += ":w" + PrintChannelBits(signs, group_size);
  return text + fmt::format(":{}", ShortName(row_type));
}

std::string TurboquantFormat::Kind() const { return fmt::format("turboquant:{}", bits); }

Planes TurboquantFormat::PlanesOf(int64_t head_dim) const {
  Planes planes;
  planes.Add({"codes", DType::kUInt32, "W", head_dim * bits / 32});
  planes.Add({"norms", DType::kFloat16, "G", head_dim / group_size});
  return planes;
}

int64_t TurboquantFormat::Rank() const {
  return 60 + 2 * std::abs(bits - 4) + group_size +
         (codebook == TurboquantCodebook::kExact ? 0 : 8) + (seed == 0 ? 0 : 4) + RankOf(row_type);
}

std::vector<TurboquantFormat> TurboquantFormat::Simpler() const {
  return {{4, 32, TurboquantCodebook::kExact, 0, DType::kFloat32},
          {bits, 32, TurboquantCodebook::kExact, 0, row_type},
          {bits, group_size, TurboquantCodebook::kExact, 0, row_type}};
}

}  // namespace kvcheck
