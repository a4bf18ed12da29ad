#include "reference/spec/turboquant_prod_format.h"

#include <fmt/format.h>

#include <bit>

#include "reference/spec/row_type.h"

namespace kvcheck {
namespace {

constexpr std::string_view kProd = "prod";
constexpr std::string_view kProdWritten =
    "the inner-product codec is written turboquant:prod:BITS:gGROUP[:CODEBOOK][:sSEED]:ROW_TYPE, "
    "as "
    "turboquant:prod:4:g128:bf16";
constexpr int64_t kLargestProdSeed = 0x7fffffff;

bool IsSeed(std::string_view text) {
  return text.size() > 1 && text[0] == 's' && text.find_first_not_of("0123456789", 1) == text.npos;
}

}  // namespace

std::optional<TurboquantProdFormat> TurboquantProdFormat::Parse(Piece piece,
                                                                const std::vector<Piece>& parts,
                                                                bool* has_row_type) {
  if (parts[0].text != Names() || parts.size() < 2 || parts[1].text != kProd) return std::nullopt;
  if (parts.size() < 4 || parts[3].text.substr(0, 1) != "g") piece.Refuse(kProdWritten);
  TurboquantProdFormat format;
  format.bits = static_cast<int>(ParseInt(parts[2], 0, 64));
  if (format.bits < 1 || format.bits > 5) {
    parts[2].Refuse("bits of the inner-product codec are 1 to 5, the sign included");
  }
  const int64_t group = ParseInt({parts[3].text.substr(1), parts[3].whole}, 0, int64_t{1} << 20);
  if (group < 32 || group > 512 || !std::has_single_bit(static_cast<uint64_t>(group))) {
    parts[3].Refuse("groups of the inner-product codec are g32, g64, g128, g256 or g512");
  }
  format.group_size = static_cast<int>(group);
  size_t at = 4;
  const auto codebook = at < parts.size() ? TurboquantCodebookNamed(parts[at].text) : std::nullopt;
  if (codebook) {
    format.codebook = *codebook;
    if (!format.Exists()) {
      parts[at].Refuse(
          "there is no such set of centroids for codes of BITS - 1: mlx_vlm has 1 to 4 bits and "
          "groups up to 256, vllm 3 and 4 bits and groups from 64 to 256");
    }
    ++at;
  }
  if (at < parts.size() && IsSeed(parts[at].text)) {
    format.seed = ParseInt({parts[at].text.substr(1), parts[at].whole}, 0, kLargestProdSeed);
    ++at;
  }
  format.row_type = ParseRowType(piece, parts, at, kProdWritten, has_row_type);
  return format;
}

std::vector<TurboquantProdFormat> TurboquantProdFormat::All() {
  std::vector<TurboquantProdFormat> formats;
  for (int bits = 1; bits <= 5; ++bits) {
    formats.push_back({bits, 32, TurboquantCodebook::kExact, 0, DType::kFloat32});
  }
  formats.push_back({2, 64, TurboquantCodebook::kMlxVlm, 1, DType::kFloat16});
  formats.push_back({3, 64, TurboquantCodebook::kMlxVlm, 0, DType::kFloat32});
  formats.push_back({4, 128, TurboquantCodebook::kMlxVlm, 0, DType::kBFloat16});
  return formats;
}

bool TurboquantProdFormat::Exists() const {
  if (bits < 1 || bits > 5 || seed < 0) return false;
  // The codes' format knows its groups, codebooks, seeds and types of rows.
  if (const auto codes = Codes()) return codes->Exists();
  return codebook == TurboquantCodebook::kExact &&
         TurboquantFormat{1, group_size, codebook, seed, row_type, {}}.Exists();
}

std::string TurboquantProdFormat::Text() const {
  std::string text = fmt::format("turboquant:{}:{}:g{}", kProd, bits, group_size);
  if (codebook != TurboquantCodebook::kExact) text += fmt::format(":{}", NameOf(codebook));
  if (seed > 0) text += fmt::format(":s{}", seed);
  return text + fmt::format(":{}", ShortName(row_type));
}

std::string TurboquantProdFormat::Kind() const {
  return fmt::format("turboquant:{}:{}", kProd, bits);
}

Planes TurboquantProdFormat::PlanesOf(int64_t head_dim) const {
  Planes planes;
  planes.Add({"codes", DType::kUInt32, "W", head_dim * bits / 32});
  planes.Add({"norms", DType::kFloat16, "G", head_dim / group_size});
  planes.Add({"residual_norms", DType::kFloat16, "G", head_dim / group_size});
  return planes;
}

int64_t TurboquantProdFormat::Rank() const {
  return 500 + TurboquantFormat{bits, group_size, codebook, seed, row_type, {}}.Rank();
}

std::vector<TurboquantProdFormat> TurboquantProdFormat::Simpler() const {
  return {{2, 32, TurboquantCodebook::kExact, 0, DType::kFloat32},
          {bits, 32, TurboquantCodebook::kExact, 0, row_type},
          {bits, group_size, TurboquantCodebook::kExact, 0, row_type}};
}

}  // namespace kvcheck
