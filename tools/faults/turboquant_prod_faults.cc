// Faults of turboquant's inner-product codec: turboquant.md, section 5, item 8, and its like.

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/formats/turboquant_prod.h"
#include "reference/formats/turboquant_rotation.h"
#include "reference/numerics/convert.h"
#include "tools/faults/codec_faults.h"

namespace kvcheck {
namespace {

// Bytes of a row's codes, after which its signs stand; of another format none.
struct SignsOfRow {
  size_t first = 0, count = 0;
};

SignsOfRow SignsOf(const KvFormat& format, int64_t head_dim) {
  return std::visit(
      [&](const auto& family) -> SignsOfRow {
        if constexpr (requires { family.Codes(); }) {
          const auto dim = static_cast<size_t>(head_dim);
          return {dim * static_cast<size_t>(family.bits - 1) / 8, dim / 8};
        }
        return {};
      },
      format);
}

// Rows of the right codes and norms, and of the signs that sign(codec, residual, j) says.
template <typename Sign>
TensorMap WithSigns(const CodecCase& c, const Profile& profile, const Tensor& x, Sign sign) {
  TensorMap stored = EncodeRows(c.format, profile, x);
  const SignsOfRow place = SignsOf(c.format, c.head_dim);
  if (place.count == 0) return stored;
  std::visit(
      [&](const auto& family) {
        if constexpr (requires { family.Codes(); }) {
          const TurboquantProd prod(family);
          const auto dim = static_cast<size_t>(c.head_dim);
          std::vector<double> values(dim);
          for (size_t row = 0; row < static_cast<size_t>(c.rows); ++row) {
            DecodeTo(x, static_cast<int64_t>(row * dim), values);
            RoundAll(values, family.row_type);
            std::byte* bytes =
                stored.at("codes").bytes.data() + row * (place.first + place.count) + place.first;
            for (size_t first = 0; first < dim; first += prod.d()) {
              const std::vector<float> group(
                  values.begin() + static_cast<std::ptrdiff_t>(first),
                  values.begin() + static_cast<std::ptrdiff_t>(first + prod.d()));
              const TurboquantProdGroup right = prod.Encode(group);
              const std::vector<bool> signs =
                  sign(prod, prod.Residual(group, right.norm, right.codes));
              for (size_t j = 0; j < prod.d(); ++j) {
                const auto bit = static_cast<std::byte>(1u << j % 8);
                std::byte& byte = bytes[(first + j) / 8];
                byte = signs[j] ? byte | bit : byte & ~bit;
              }
            }
          }
        }
      },
      c.format);
  return stored;
}

// What a fused writer of one token does to codes that a Hadamard transform made: the residual is
// projected as it is in the basis of the codes.
TensorMap SignsInBasisOfCodes(const CodecCase& c, const Profile& profile, const Tensor& x) {
  return WithSigns(c, profile, x, [](const TurboquantProd& prod, std::vector<float> residual) {
    if (prod.mse()) Rotate<float>(prod.mse()->signs(), residual);
    std::vector<bool> signs;
    for (const double sum : prod.Project(residual)) signs.push_back(sum >= 0);
    return signs;
  });
}

TensorMap SignOfZeroIsMinus(const CodecCase& c, const Profile& profile, const Tensor& x) {
  return WithSigns(c, profile, x, [](const TurboquantProd& prod, std::vector<float> residual) {
    std::vector<bool> signs;
    for (const double sum : prod.Project(residual)) signs.push_back(sum > 0);
    return signs;
  });
}

void ResidualNormDropped(const CodecCase&, TensorMap* stored) {
  Tensor* norms = FindPlane(stored, "residual_norms");
  if (norms != nullptr) std::fill(norms->bytes.begin(), norms->bytes.end(), std::byte{0});
}
void NormsExchanged(const CodecCase&, TensorMap* stored) {
  Tensor* norms = FindPlane(stored, "norms");
  Tensor* residual_norms = FindPlane(stored, "residual_norms");
  if (norms != nullptr && residual_norms != nullptr) std::swap(*norms, *residual_norms);
}
void SignsInverted(const CodecCase& c, TensorMap* stored) {
  const SignsOfRow place = SignsOf(c.format, c.head_dim);
  Tensor* codes = FindPlane(stored, "codes");
  if (place.count == 0 || codes == nullptr) return;
  for (size_t at = 0; at < codes->bytes.size(); ++at) {
    if (at % (place.first + place.count) >= place.first) codes->bytes[at] = ~codes->bytes[at];
  }
}

// The seed of V's codec where K's is meant: another rotation, and another projection.
KvFormat SeedOfValues(const KvFormat& format) {
  return std::visit(
      [](auto family) {
        if constexpr (requires { family.Codes(); }) {
          family.seed = family.seed == 0 ? 1 : family.seed - 1;
        }
        return KvFormat(family);
      },
      format);
}

constexpr std::string_view kProdSigns =
    "codec encode turboquant codes bytes | codec round_trip turboquant y bound";
constexpr std::string_view kProdNorms =
    "codec encode turboquant norms bytes | codec encode turboquant residual_norms bytes | codec "
    "encode turboquant residual_norms special_value | codec encode turboquant norms special_value "
    "| codec decode turboquant y bytes | codec decode turboquant y bound | codec decode turboquant "
    "y special_value | codec round_trip turboquant y bound";
constexpr std::string_view kProdBytes =
    "codec encode turboquant codes bytes | codec encode turboquant residual_norms bytes | codec "
    "decode turboquant y bytes | codec decode turboquant y bound | codec decode turboquant y "
    "special_value | codec round_trip turboquant y bound";
constexpr std::string_view kProdEncoded =
    "codec op=encode format=turboquant:prod:2:g32:f32 x=f32 rows=1 d=32 data=gauss:1";
constexpr std::string_view kProdDecoded =
    "codec op=decode format=turboquant:prod:2:g32:f32 x=f32 rows=1 d=32 data=gauss:1";

constexpr CodecFault kTurboquantProdFaults[] = {
    {{"tq_signs_in_basis_of_codes", "encode", "the residual is projected in the basis of the codes",
      "vlm-tq-prod-fused-basis", "P5", kProdSigns, kProdEncoded},
     {.encode = SignsInBasisOfCodes}},
    {{"tq_sign_of_zero_is_minus", "encode", "a projection of 0 counts as negative",
      "vlm-tq-prod-fused-basis", "P5", kProdSigns,
      "codec op=encode format=turboquant:prod:1:g32:f32 x=f32 rows=16 d=32 data=sparse:1"},
     {.encode = SignOfZeroIsMinus}},
    {{"tq_residual_norm_dropped", "tensors", "the norm of the residual is 0",
      "sgl-fp8-scale-not-loaded fi-fp8-scale-ignored", "P9", kProdNorms, kProdDecoded},
     {.tensors = ResidualNormDropped}},
    {{"tq_norms_exchanged", "tensors", "the norms of rows and of residuals are exchanged",
      "cachelist-state-flatten", "P4", kProdNorms, kProdDecoded},
     {.tensors = NormsExchanged}},
    {{"tq_signs_inverted", "tensors", "a set bit means a negative projection",
      "vllm-tq-2bit-hardcoded", "P9", kProdBytes, kProdDecoded},
     {.tensors = SignsInverted}},
    {{"tq_seed_of_values", "format", "K's rows are written and read with the seed of V",
      "ssd-loses-bits-groupsize", "P4", kProdBytes, kProdDecoded},
     {.format = SeedOfValues}},
};

}  // namespace

std::span<const CodecFault> TurboquantProdFaults() { return kTurboquantProdFaults; }

}  // namespace kvcheck
