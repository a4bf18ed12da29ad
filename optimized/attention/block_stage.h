// Stages a block for the kernels: addresses of rows; scales and biases as f32; codes of 2, 3, 5 and
// 6 bits unpacked to bytes; rows of formats that no kernel reads decoded to f32; and, for tiles of
// many queries, the block widened or transposed. All in buffers that stay in cache.

#ifndef OPTIMIZED_ATTENTION_BLOCK_STAGE_H_
#define OPTIMIZED_ATTENTION_BLOCK_STAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "optimized/attention/attention.h"
#include "optimized/attention/block.h"
#include "optimized/attention/fixed_point.h"
#include "optimized/attention/head_group_scales.h"
#include "optimized/attention/kernels.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck::optimized {

class BlockStage {
 public:
  struct Reading {
    bool factored = false;  // codes go to the factored kernels. Precondition: IsFactored
    bool in_basis = false;  // rows are not rotated back. Precondition: RotatesRows
  };
  void Start(const KvFormat& format, int64_t dim, const Reading& reading);
  // What the kernels read. The bits of the result are the same:
  //   kStored      rows as stored
  //   kFloats      widened (WidenKernel); factored: for sums alone
  //   kTransposed  K transposed, for RowKernels::transposed_dot
  enum class As { kStored, kFloats, kTransposed };
  // Reserves what Take may need, so that a call as large as an earlier one allocates nothing.
  void MakeRoom(bool floats, bool transposed);
  // The rows of `count` columns (1 to 64) of a head, without prefetch. contiguous: only columns[0]
  // is read. group_scales: of these columns, transposed.
  void Take(const StoredHeads& from, int64_t head, const int64_t* columns, int64_t count,
            bool contiguous, As as, const AttentionKernels& kernels,
            const HeadGroupScales::Head& group_scales = {});
  // The first kernel has prefetched it all.
  void StopPrefetch() { block_.prefetch[0].count = block_.prefetch[1].count = 0; }
  BlockRows& rows() { return block_; }
  int64_t groups() const { return groups_; }
  // Bytes of one row's codes as stored.
  int64_t row_bytes() const { return row_bytes_; }
  // Bytes of one row's scales, of those that have biases; 0: none.
  int64_t scale_bytes() const {
    return scaled_ && !fixed_.in_blocks && HasBiases(kind_)
               ? groups_ * static_cast<int64_t>(SizeInBytes(scale_dtype_))
               : 0;
  }

 private:
  // Of the family, for Start.
  void StartRows(const PlainFormat& format, const Reading& reading);
  void StartRows(const AffineFormat& format, const Reading& reading);
  void StartRows(const TurboquantFormat& format, const Reading& reading);
  void StartRows(const SplitTurboquantFormat& format, const Reading& reading);
  void StartRows(const ScaledFormat& format, const Reading& reading);
  void StartRows(const UniformFormat& format, const Reading& reading);
  void StartRows(const RotatedFormat& format, const Reading& reading);
  template <typename Format>
  void StartRows(const Format& format, const Reading& reading);
  void StartCentroids(RowKind kind, int64_t group, int64_t row_bytes);
  void StartScales(int64_t group);
  void SetHalves();
  void Decode(const StoredHeads& from, int64_t head, const int64_t* columns, bool contiguous);
  void Widen(const AttentionKernels& kernels);
  // Padded by a cache line: at strides of a power of two rows share few L1 sets.
  int64_t WidenedStride() const { return PaddedDim(dim_) + kSumLanes16; }
  void TakeScales(const StoredHeads& from, int64_t head, const int64_t* columns, int64_t count,
                  bool contiguous, const AttentionKernels& kernels,
                  const HeadGroupScales::Head& group_scales);
  void TakeScalesOfBlocks(const AttentionKernels& kernels);

  BlockRows block_;
  RowKind kind_ = RowKind::kFloat32;
  int bits_ = 0;  // of codes that are unpacked; 0: none
  bool scaled_ = false;
  DType scale_dtype_ = DType::kFloat32;
  int64_t dim_ = 0, group_ = 0, groups_ = 0;
  int64_t row_bytes_ = 0;
  FixedOperand fixed_;  // of factored rows in fixed point
  bool decodes_ = false;
  bool in_basis_ = false;
  RowCodec codec_;  // of rows that are decoded
  std::vector<float> decoded_;
  alignas(64) std::array<float, 32> centroids_{};  // 16 of each half
  BlockRows high_;
  std::optional<ScaledFormat> given_scales_;  // of the tensor or of heads, which no row holds
  int64_t scales_at_ = 0;      // bytes after which a row's scale follows its codes; 0: in planes
  int64_t low_bytes_ = 0;      // of a row's codes in its first half
  std::vector<float> scales_;  // and biases, and the buffer of WidenScalesKernel
  std::vector<uint16_t> halves_;
  std::vector<float> values_, transposed_;
  std::vector<std::byte> codes_;
};

// A part of a block, for queries that see no more: the rows of the positions at the bits of
// `places`. The bits of `present` are the positions of the block's rows, in order.
class SelectedRows {
 public:
  void MakeRoom(int64_t groups);
  const BlockRows& Select(const BlockRows& block, uint64_t present, uint64_t places);

 private:
  // scales: room for scales and biases; null: of rows that have none.
  static void Copy(const BlockRows& block, uint64_t present, uint64_t places, float* scales,
                   BlockRows* to);

  BlockRows rows_, high_;
  std::vector<float> scales_;  // and biases
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_BLOCK_STAGE_H_
