#include "optimized/attention/block_stage.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace kvcheck::optimized {
namespace {

RowKind PlainKind(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return RowKind::kFloat16;
    case DType::kBFloat16:
      return RowKind::kBFloat16;
    case DType::kFloat8E4M3FN:
      return RowKind::kFloat8E4M3;
    case DType::kFloat8E5M2:
      return RowKind::kFloat8E5M2;
    default:
      return RowKind::kFloat32;
  }
}

bool AreUsual(const float* scales, int64_t count) {
  bool usual = true;
  for (int64_t i = 0; i < count; ++i) {
    const float size = std::fabs(scales[i]);
    usual &= size == 0 || (size >= 0x1p-40f && size <= 0x1p60f);
  }
  return usual;
}

template <typename T>
void GrowTo(std::vector<T>* buffer, int64_t count) {
  if (static_cast<int64_t>(buffer->size()) < count) buffer->resize(static_cast<size_t>(count));
}

}  // namespace

void BlockStage::Start(const KvFormat& format, int64_t dim, bool planes) {
  dim_ = dim;
  bits_ = 0;
  group_ = dim;
  const auto* affine = std::get_if<AffineFormat>(&format);
  scaled_ = affine != nullptr;
  if (!scaled_) {
    const DType dtype = std::get<PlainFormat>(format).dtype;
    kind_ = PlainKind(dtype);
    row_bytes_ = dim * static_cast<int64_t>(SizeInBytes(dtype));
    return;
  }
  if (planes) {
    kind_ = affine->bits == 4 ? RowKind::kPlanes4 : RowKind::kPlanes8;
  } else {
    kind_ = affine->bits == 4 ? RowKind::kCode4 : RowKind::kCode8;
  }
  if (affine->bits != 4 && affine->bits != 8) bits_ = affine->bits;
  scale_dtype_ = affine->scale_dtype;
  group_ = affine->group_size;
  groups_ = dim / group_;
  row_bytes_ = dim * affine->bits / 8;
  GrowTo(&scales_, groups_ * kBlockTokens);
  GrowTo(&biases_, groups_ * kBlockTokens);
  if (bits_ != 0) GrowTo(&codes_, dim * kBlockTokens);
}

void BlockStage::TakeScales(const StoredHeads& from, int64_t head, const int64_t* columns,
                            int64_t count) {
  const std::byte* scales[kBlockTokens];
  const std::byte* biases[kBlockTokens];
  const int64_t bytes = groups_ * static_cast<int64_t>(SizeInBytes(scale_dtype_));
  const int64_t of_head = head * from.scale_head_stride;
  bool whole = from.scale_stride == bytes;
  for (int64_t i = 1; whole && i < count; ++i) whole = columns[i] == columns[0] + i;
  const int64_t pieces = whole ? 1 : count;
  for (int64_t i = 0; i < pieces; ++i) {
    scales[i] = from.scales + of_head + columns[i] * from.scale_stride;
    biases[i] = from.biases + of_head + columns[i] * from.scale_stride;
  }
  const int64_t per_piece = whole ? count * groups_ : groups_;
  WidenScales(scale_dtype_, scales, pieces, per_piece, scales_.data());
  WidenScales(scale_dtype_, biases, pieces, per_piece, biases_.data());
  block_.usual_scales =
      scale_dtype_ == DType::kFloat16 || AreUsual(scales_.data(), count * groups_);
  for (int64_t i = 0; i < count; ++i) {
    block_.scales[i] = scales_.data() + i * groups_;
    block_.biases[i] = biases_.data() + i * groups_;
  }
}

// Few bytes a token, which no kernel fetches ahead.
void BlockStage::FetchScales(const Ahead& ahead, const int64_t* columns, int64_t count) {
  constexpr int64_t kLineBytes = 64;
  const StoredHeads& of = *ahead.of;
  if (of.scales == nullptr) return;
  const auto at = [&](const std::byte* base, int64_t i) {
    return reinterpret_cast<uintptr_t>(base) +
           static_cast<uintptr_t>(ahead.head * of.scale_head_stride +
                                  (columns[i] + ahead.columns) * of.scale_stride);
  };
  // Lines already asked for are skipped where tokens stand one after the other.
  const int64_t every = std::max<int64_t>(
      1, of.scale_stride > 0 ? kLineBytes / std::max<int64_t>(of.scale_stride, 1) : kLineBytes);
  for (int64_t i = 0; i < count; i += every) {
    __builtin_prefetch(reinterpret_cast<const void*>(at(of.scales, i)));
    __builtin_prefetch(reinterpret_cast<const void*>(at(of.biases, i)));
  }
}

void BlockStage::Take(const StoredHeads& from, int64_t head, const int64_t* columns, int64_t count,
                      bool widen, const AttentionKernels& kernels, const Ahead& ahead) {
  block_.kind = kind_;
  block_.dim = dim_;
  block_.group = group_;
  block_.count = count;
  block_.ahead_bytes = 0;
  const std::byte* codes = from.codes + head * from.code_head_stride;
  for (int64_t i = 0; i < count; ++i) block_.rows[i] = codes + columns[i] * from.code_stride;
  if (ahead.of != nullptr) {
    FetchScales(ahead, columns, count);
    block_.ahead_bytes = ahead.bytes;
    // Addresses that may lie outside of everything: they are only fetched.
    const auto of_head = reinterpret_cast<uintptr_t>(ahead.of->codes) +
                         static_cast<uintptr_t>(ahead.head * ahead.of->code_head_stride);
    for (int64_t i = 0; i < count; ++i) {
      block_.ahead[i] = reinterpret_cast<const std::byte*>(
          of_head + static_cast<uintptr_t>((columns[i] + ahead.columns) * ahead.of->code_stride));
    }
  }
  if (scaled_) TakeScales(from, head, columns, count);
  if (bits_ != 0) {
    UnpackCodes(bits_, block_.rows, count, dim_, codes_.data());
    for (int64_t i = 0; i < count; ++i) block_.rows[i] = codes_.data() + i * dim_;
  }
  if (!widen) return;
  // Vectors of f32 that stand one after the other are as good as a copy of them; apart, at strides
  // of a power of two, they would share few sets of the first cache.
  if (kind_ == RowKind::kFloat32 && dim_ % kSumLanes16 == 0 && from.code_stride == row_bytes_)
    return;
  const int64_t padded = PaddedDim(dim_);
  GrowTo(&values_, padded * kBlockTokens + kSumLanes16);
  // Kernels store whole vectors.
  void* start = values_.data();
  size_t room = values_.size() * sizeof(float);
  float* to = static_cast<float*>(
      std::align(64, static_cast<size_t>(padded * kBlockTokens) * sizeof(float), start, room));
  kernels.widen[static_cast<int>(kind_)](block_, to);
  const bool planes = kind_ == RowKind::kPlanes8 || kind_ == RowKind::kPlanes4;
  block_.kind = planes ? RowKind::kPlaneFloats : RowKind::kFloat32;
  block_.dim = padded;
  block_.ahead_bytes = 0;
  for (int64_t i = 0; i < count; ++i) {
    block_.rows[i] = reinterpret_cast<const std::byte*>(to + i * padded);
  }
}

void SelectRows(const BlockRows& block, uint64_t present, uint64_t places, BlockRows* out) {
  out->kind = block.kind;
  out->dim = block.dim;
  out->group = block.group;
  out->ahead_bytes = 0;
  out->usual_scales = block.usual_scales;
  const bool scaled = HasScales(block.kind);
  int64_t count = 0;
  for (uint64_t rest = places; rest != 0; rest &= rest - 1) {
    const uint64_t below = (rest & -rest) - 1;
    const auto i = static_cast<size_t>(std::popcount(present & below));
    out->rows[count] = block.rows[i];
    if (scaled) {
      out->scales[count] = block.scales[i];
      out->biases[count] = block.biases[i];
    }
    ++count;
  }
  out->count = count;
}

}  // namespace kvcheck::optimized
