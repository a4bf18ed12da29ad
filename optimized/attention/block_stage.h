// Makes the vectors of a block ready for the kernels: their addresses; scales and biases as f32;
// codes that are no half or whole bytes as bytes; formats that no kernel reads as their values;
// and, for whoever takes a block many times, the values themselves. All of it in memory that stays
// in the cache.

#ifndef OPTIMIZED_ATTENTION_BLOCK_STAGE_H_
#define OPTIMIZED_ATTENTION_BLOCK_STAGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optimized/attention/attention.h"
#include "optimized/attention/block.h"
#include "optimized/attention/head_scales.h"
#include "optimized/attention/kernels.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck::optimized {

class BlockStage {
 public:
  // planes: codes are taken plane by plane (HavePlanes).
  void Start(const KvFormat& format, int64_t dim, bool planes);
  // How they are read: as they are stored; as f32, of planes the codes, which only sums take; or as
  // f32 turned about, for AttentionKernels::turned_dot. Same values, so that kernels give the same
  // bits.
  enum class As { kStored, kFloats, kTurned };
  // For what Take may need: a call as large as an earlier one allocates nothing, however much of a
  // block is seen.
  void MakeRoom(bool floats, bool turned);
  // The vectors of `count` columns (1 to 64) of a head, with nothing ahead. together: they stand
  // one after the other, and the first one is enough. head_scales: of these columns.
  void Take(const StoredHeads& from, int64_t head, const int64_t* columns, int64_t count,
            bool together, As as, const AttentionKernels& kernels,
            const HeadScales::Head& head_scales = {});
  // What is ahead is on its way.
  void StopFetching() { block_.ahead[0].count = block_.ahead[1].count = 0; }
  BlockRows& rows() { return block_; }
  int64_t groups() const { return groups_; }
  // Bytes of one vector's codes as they are stored.
  int64_t row_bytes() const { return row_bytes_; }
  // Bytes of its scales; 0: it has none.
  int64_t scale_bytes() const {
    return scaled_ ? groups_ * static_cast<int64_t>(SizeInBytes(scale_dtype_)) : 0;
  }

 private:
  // Of the family, for Start.
  void StartRows(const PlainFormat& format, bool planes);
  void StartRows(const AffineFormat& format, bool planes);
  template <typename Format>
  void StartRows(const Format& format, bool planes);
  void Decode();
  void Widen(const AttentionKernels& kernels);
  // A line more: vectors at strides of a power of two would share few sets of the first cache.
  int64_t WidenedStride() const { return PaddedDim(dim_) + kSumLanes16; }
  void TakeScales(const StoredHeads& from, int64_t head, const int64_t* columns, int64_t count,
                  bool together, const AttentionKernels& kernels,
                  const HeadScales::Head& head_scales);

  BlockRows block_;
  RowKind kind_ = RowKind::kFloat32;
  int bits_ = 0;  // of codes that are unpacked; 0: none
  bool scaled_ = false;
  DType scale_dtype_ = DType::kFloat32;
  int64_t dim_ = 0, group_ = 0, groups_ = 0;
  int64_t row_bytes_ = 0;
  bool decodes_ = false;
  RowCodec codec_;  // of rows that are decoded
  std::vector<float> decoded_;
  std::vector<float> scales_;  // and biases, and room for the kernel that widens them
  std::vector<float> values_, turned_;
  std::vector<std::byte> codes_;
};

// The queries that see a part of a block only: its vectors at the bits of `places`, where the bits
// of `present` are the vectors of the block in order.
class SelectedRows {
 public:
  void MakeRoom(int64_t groups);
  const BlockRows& Select(const BlockRows& block, uint64_t present, uint64_t places);

 private:
  BlockRows rows_;
  std::vector<float> scales_;  // and biases
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_BLOCK_STAGE_H_
