// TurboQuant's MSE codec: per group of channels a vector is divided by its Euclidean norm, rotated
// (random signs, then a Hadamard transform), and every coordinate stored as the code of the nearest
// centroid. The group is mlx-vlm's head_dim: what that library stores of 128 channels is g128.
// Text: turboquant:BITS:gGROUP[:CODEBOOK][:SIGNS]:ROW_TYPE ("turboquant:4:g128:bf16",
// "turboquant:3:g64:mlx_vlm:s1:f32").

#ifndef REFERENCE_SPEC_TURBOQUANT_FORMAT_H_
#define REFERENCE_SPEC_TURBOQUANT_FORMAT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

// Which 2^bits centroids, as f32; a codebook is data, never an algorithm.
//   exact     the Lloyd-Max optimum of the coordinate's distribution, rounded to f32
//   mlx_vlm   what mlx-vlm 0.7.10 computes on one machine (its iteration stops early)
//   vllm      what vLLM computes, for a normal distribution in place of the coordinate's
enum class TurboquantCodebook { kExact, kMlxVlm, kVllm };
std::string_view NameOf(TurboquantCodebook codebook);
// nullopt where the text is no name of one.
std::optional<TurboquantCodebook> TurboquantCodebookNamed(std::string_view text);

// One bit a channel, in words of 32: bit i of word w is that of channel 32 w + i. As text each word
// is eight hexadecimal digits, its highest channel first.
using ChannelBits = std::array<uint32_t, 16>;
std::string PrintChannelBits(const ChannelBits& words, int channels);
// what: what the words are, for messages.
ChannelBits ParseChannelBits(Piece digits, int channels, std::string_view what);

// Planes: `codes`, one LSB-first bit stream of little-endian u32 words per group; `norms` in f16,
// one per group.
struct TurboquantFormat {
  static constexpr int64_t kPlainHadamard = -1;
  static constexpr int64_t kGivenSigns = -2;

  int bits = 4;          // 1 to 5
  int group_size = 128;  // 32, 64, 128, 256, 512
  TurboquantCodebook codebook = TurboquantCodebook::kExact;
  // Of the random signs, 0 to 2^31 - 1. kPlainHadamard: all are +; kGivenSigns: those of `signs`.
  int64_t seed = 0;
  DType row_type = DType::kFloat32;  // f32, f16 or bf16: of rows before and after
  ChannelBits signs{};               // set: +; zeros where they are not given
  bool operator==(const TurboquantFormat&) const = default;

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "turboquant:BITS:gGROUP[:CODEBOOK][:SIGNS]:ROW_TYPE"; }
  static std::string_view Names() { return "turboquant"; }
  static std::optional<TurboquantFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                               bool* has_row_type);
  static std::vector<TurboquantFormat> All();
  bool Exists() const;
  std::string Text() const;
  std::string Kind() const;
  int64_t Block() const { return group_size; }
  DType RowType() const { return row_type; }
  // The norm of 512 channels of its largest value is below 65504, the largest f16.
  DType RangeType() const { return DType::kFloat8E4M3FN; }
  TurboquantFormat WithRowType(DType type) const {
    return {bits, group_size, codebook, seed, type, signs};
  }
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const { return std::nullopt; }
  bool MayBeRotated() const { return false; }  // rotates itself
  bool Leaves(CodecChoice choice) const {
    return choice == CodecChoice::kTurboquant ||
           (choice == CodecChoice::kDecode && row_type != DType::kFloat32);
  }
  int64_t Rank() const;
  std::vector<TurboquantFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TURBOQUANT_FORMAT_H_
