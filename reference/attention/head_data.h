// The stored K and V of one batch row and one key/value head as exact doubles, laid out for both
// evaluators. Stored values are exact for the reference: plain types and rounded affine values fit
// a double; the real value code * scale + bias of an affine code is a pair hi + lo.

#ifndef REFERENCE_ATTENTION_HEAD_DATA_H_
#define REFERENCE_ATTENTION_HEAD_DATA_H_

#include <cstdint>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/formats/stored_basis.h"
#include "reference/spec/case.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

inline constexpr int64_t kKeyTile = 16;  // keys per tile of the transposed K

// One operand (K or V) of one head: rows of kv_len keys.
struct OperandRows {
  int64_t dim = 0;
  std::vector<double> hi;         // [T][dim]
  std::vector<double> lo;         // [T][dim]; empty: all zero
  std::vector<double> magnitude;  // [T][dim] |c s| + |z| where codes are dequantized in the kernel;
                                  // empty: |hi|. V in its basis: sum |y| over its block / sqrt N
  double scale_largest = 0;       // max of |s| and |z|, beside magnitude
  std::vector<double> scales;     // [T][dim / group] |s|, beside magnitude
  std::vector<double> codec_error;  // [T][dim] bound of |stored - original|, or of |hi - R^T y|
                                    // where the kernel stays in the stored basis; empty: none
  // Where the kernel stays in the basis in which rows y are stored; else no blocks.
  StoredBasis basis;
  std::vector<double> in_basis;     // [T][dim] |y|
  std::vector<double> block_norms;  // [T][blocks] |y|_2 of each block, of K
};

// What is wanted of an operand beside its values.
struct OperandDetail {
  bool parts = false;     // of codes that the kernel dequantizes
  bool in_basis = false;  // the stored basis, of formats that rotate rows
  bool operator==(const OperandDetail&) const = default;
};

// Decodes one head. against_original: hi holds the originals and codec_error the codec's bound.
OperandRows LoadOperand(const AttentionCase& c, const Profile& profile, const TensorMap& inputs,
                        bool is_key, int64_t batch, int64_t kv_head, OperandDetail detail);

// CodesAsNumbers (codec.h) of K or V of one head. Precondition: the format has a grid.
std::vector<double> LoadCodes(const AttentionCase& c, const TensorMap& inputs, bool is_key,
                              int64_t batch, int64_t kv_head);

struct HeadData {
  int64_t kv_len = 0;
  OperandRows k;
  OperandRows v;
  // Tiles of kKeyTile keys, [tile][Dk][kKeyTile], zero-filled beyond kv_len.
  std::vector<double> k_tiles;
  std::vector<double> k_lo_tiles;         // empty: all zero
  std::vector<double> k_magnitude_tiles;  // empty: |k_tiles|
  std::vector<double> k_abs_sum;          // [T] sum_i of the magnitude, or of |y| in its basis
  double k_abs_largest = 0;               // max of k_abs_sum
  double k_norm_largest = 0;              // max |k|_2 of all keys
  double v_largest = 0;                   // max |v| of all keys, of those that are finite
  std::vector<double> v_largest_of;       // [Dv] the same of each channel
  std::vector<uint8_t> v_not_finite;      // [Dv] 1: V of some key is not finite; empty: none
};

HeadData LoadHead(const AttentionCase& c, const Profile& profile, const TensorMap& inputs,
                  int64_t batch, int64_t kv_head, OperandDetail detail);
// K and V of keys [first_key, first_key + keys) as a head of these, for an evaluation in double:
// values and tiles, and nothing that a bound needs.
HeadData LoadKeys(const AttentionCase& c, const Profile& profile, const TensorMap& inputs,
                  int64_t batch, int64_t kv_head, int64_t first_key, int64_t keys);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_HEAD_DATA_H_
