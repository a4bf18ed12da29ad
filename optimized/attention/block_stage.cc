#include "optimized/attention/block_stage.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>

#include "optimized/attention/aligned_floats.h"
#include "optimized/attention/fixed_point.h"
#include "optimized/formats/iq4_nl_rows.h"
#include "optimized/formats/turboquant_rows.h"

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

bool ScalesInRange(const float* scales, int64_t count, int64_t groups) {
  bool in_range = true;
  for (int64_t g = 0; g < groups; ++g, scales += kBlockTokens) {
    for (int64_t i = 0; i < count; ++i) {
      const float size = std::fabs(scales[i]);
      in_range &= size == 0 || (size >= 0x1p-40f && size <= 0x1p60f);
    }
  }
  return in_range;
}

// Two dependency chains. Integers, not pointers: addresses may go past the allocation.
void FillRows(const std::byte* first, int64_t stride, int64_t count, const std::byte** rows) {
  const auto step = static_cast<uintptr_t>(stride);
  auto even = reinterpret_cast<uintptr_t>(first);
  uintptr_t odd = even + step;
  for (int64_t i = 0; i < count; i += 2) {  // kBlockTokens is even: no overrun
    rows[i] = reinterpret_cast<const std::byte*>(even);
    rows[i + 1] = reinterpret_cast<const std::byte*>(odd);
    even += 2 * step;
    odd += 2 * step;
  }
}

// Channels that kernels of codes read at a time.
constexpr int64_t kWholeChannels = 32;

// Over and over to 16.
void CopyCentroids(const TurboquantFormat& format, float* to) {
  CopyTurboquantCentroids(format, to);
  const int levels = 1 << format.bits;
  for (int i = levels; i < 16; ++i) to[i] = to[i - levels];
}

// The kinds of ggml's blocks; kFloat32: of rows that no kernel reads.
template <typename Format>
RowKind BlockKind(const Format&) {
  return RowKind::kFloat32;
}
RowKind BlockKind(const Q8_0Format&) { return RowKind::kBlock8; }
RowKind BlockKind(const Q4_0Format&) { return RowKind::kBlock4; }
RowKind BlockKind(const Iq4NlFormat&) { return RowKind::kBlock4; }
RowKind BlockKind(const Q4_1Format&) { return RowKind::kBlock4Minimum; }
RowKind BlockKind(const Q5_0Format&) { return RowKind::kBlock5; }
RowKind BlockKind(const Q5_1Format&) { return RowKind::kBlock5Minimum; }

// The sixteen numbers that codes of kBlock4 name.
template <typename Format>
void CopyNumbers(const Format&, float*) {}
void CopyNumbers(const Q4_0Format&, float* to) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<float>(i - 8);
}
void CopyNumbers(const Iq4NlFormat&, float* to) { CopyIq4NlValues(to); }

// The numbers of two bytes at `offset` of all rows, and at offset + apart, ... Shapes: to (kGroups,
// kBlockTokens).
template <int64_t kGroups>
void GatherHalves(const BlockRows& block, int64_t offset, int64_t apart, uint16_t* to) {
  const std::byte* const* rows = block.rows;
  const int64_t count = block.count;
  for (int64_t i = 0; i < count; ++i, ++to) {
    const std::byte* from = rows[i] + offset;
    for (int64_t g = 0; g < kGroups; ++g) {
      std::memcpy(to + g * kBlockTokens, from + g * apart, sizeof(*to));
    }
  }
}

template <typename T>
void GrowTo(std::vector<T>* buffer, int64_t count) {
  if (static_cast<int64_t>(buffer->size()) < count) buffer->resize(static_cast<size_t>(count));
}

}  // namespace

void BlockStage::Start(const KvFormat& format, int64_t dim, const Reading& reading) {
  dim_ = dim;
  bits_ = 0;
  group_ = dim;
  groups_ = 0;
  block_.scales = block_.biases = nullptr;
  scaled_ = decodes_ = false;
  given_scales_.reset();
  scales_at_ = 0;
  fixed_ = reading.factored ? FixedOperandOf(format).value_or(FixedOperand{}) : FixedOperand{};
  std::visit([&](const auto& family) { StartRows(family, reading); }, format);
}

void BlockStage::StartRows(const PlainFormat& format, const Reading&) {
  kind_ = PlainKind(format.dtype);
  row_bytes_ = dim_ * static_cast<int64_t>(SizeInBytes(format.dtype));
}

void BlockStage::StartRows(const AffineFormat& format, const Reading& reading) {
  scaled_ = true;
  if (reading.factored) {
    kind_ = format.bits == 4 ? RowKind::kFactored4 : RowKind::kFactored8;
  } else {
    kind_ = format.bits == 4 ? RowKind::kCode4 : RowKind::kCode8;
  }
  if (format.bits != 4 && format.bits != 8) bits_ = format.bits;
  scale_dtype_ = format.scale_dtype;
  row_bytes_ = dim_ * format.bits / 8;
  StartScales(format.group_size);
  if (bits_ != 0) GrowTo(&codes_, dim_ * kBlockTokens);
}

// Codes of up to 4 bits are looked up in registers.
void BlockStage::StartRows(const TurboquantFormat& format, const Reading& reading) {
  constexpr RowKind kKinds[] = {RowKind::kCentroid1, RowKind::kCentroid2, RowKind::kCentroid3,
                                RowKind::kCentroid4};
  const auto kind = static_cast<size_t>(format.bits - 1);
  if (!reading.in_basis || kind >= std::size(kKinds)) {
    return StartRows<TurboquantFormat>(format, reading);
  }
  StartCentroids(kKinds[kind], format.group_size, dim_ * format.bits / 8);
  CopyCentroids(format, centroids_.data());
}

void BlockStage::StartRows(const SplitTurboquantFormat& format, const Reading& reading) {
  constexpr RowKind kKinds[] = {RowKind::kHalves1And2, RowKind::kHalves2And3,
                                RowKind::kHalves3And4};
  const auto kind = static_cast<size_t>(format.bits - 1);
  if (!reading.in_basis || kind >= std::size(kKinds)) {
    return StartRows<SplitTurboquantFormat>(format, reading);
  }
  const TurboquantFormat low = HalfFormat(format, false);
  const TurboquantFormat high = HalfFormat(format, true);
  low_bytes_ = dim_ / 2 * low.bits / 8;
  StartCentroids(kKinds[kind], low.group_size, low_bytes_ + dim_ / 2 * high.bits / 8);
  CopyCentroids(low, centroids_.data());
  CopyCentroids(high, centroids_.data() + 16);
}

void BlockStage::StartCentroids(RowKind kind, int64_t group, int64_t row_bytes) {
  scaled_ = true;
  kind_ = kind;
  scale_dtype_ = DType::kFloat16;
  row_bytes_ = row_bytes;
  StartScales(group);
}

void BlockStage::StartScales(int64_t group) {
  group_ = group;
  groups_ = dim_ / group;
  AlignedFloats(&scales_, 3 * groups_ * kBlockTokens);
}

// Without tails; fnuz codes have no kernel.
void BlockStage::StartRows(const ScaledFormat& format, const Reading& reading) {
  const bool fnuz = format.code == ScaledCode::kE4M3FNUZ || format.code == ScaledCode::kE5M2FNUZ;
  if (fnuz || dim_ % kWholeChannels != 0) return StartRows<ScaledFormat>(format, reading);
  scaled_ = true;
  kind_ = format.code == ScaledCode::kInt8   ? RowKind::kScaledInt8
          : format.code == ScaledCode::kE5M2 ? RowKind::kScaledE5M2
                                             : RowKind::kScaledE4M3;
  row_bytes_ = RowBytesOf(format, dim_).codes;
  scale_dtype_ = DType::kFloat32;
  StartScales(dim_);
  if (format.place == ScalePlace::kInline) scales_at_ = dim_;
  if (!format.IsDynamic()) given_scales_ = format;
}

// Affine codes of one group.
void BlockStage::StartRows(const UniformFormat& format, const Reading& reading) {
  if (dim_ % kWholeChannels != 0) return StartRows<UniformFormat>(format, reading);
  scaled_ = true;
  kind_ = format.bits == 4 ? RowKind::kCode4 : RowKind::kCode8;
  if (format.bits != 4) bits_ = format.bits;
  if (bits_ != 0) GrowTo(&codes_, dim_ * kBlockTokens);
  row_bytes_ = RowBytesOf(format, dim_).codes;
  scale_dtype_ = DType::kFloat16;
  StartScales(dim_);
  if (format.is_inline) scales_at_ = format.CodeBytes(dim_);
}

// In their basis rows are those of the inner format, and read as those are.
void BlockStage::StartRows(const RotatedFormat& format, const Reading& reading) {
  if (!reading.in_basis) return StartRows<RotatedFormat>(format, reading);
  const Reading of_stored = {.factored = reading.factored, .in_basis = false};
  std::visit([&](const auto& stored) { StartRows(stored, of_stored); }, format.stored);
}

// ggml's blocks, in fixed point or not, and families that no kernel reads as they are stored.
template <typename Format>
void BlockStage::StartRows(const Format& format, const Reading& reading) {
  if (fixed_.in_blocks) {
    scaled_ = true;
    kind_ = fixed_.kind;
    scale_dtype_ = DType::kFloat16;
    row_bytes_ = RowBytesOf(format, dim_).codes;
    StartScales(fixed_.group);
    GrowTo(&halves_, groups_ * kBlockTokens);
    return;
  }
  kind_ = BlockKind(format);
  if (kind_ != RowKind::kFloat32) {
    group_ = BlockOf(format);
    row_bytes_ = RowBytesOf(format, dim_).codes;
    return CopyNumbers(format, centroids_.data());
  }
  decodes_ = true;
  in_basis_ = reading.in_basis;
  codec_.Start(format, DType::kFloat32, dim_);
  row_bytes_ = codec_.bytes().codes;
  AlignedFloats(&decoded_, WidenedStride() * kBlockTokens);
}

void BlockStage::Decode(const StoredHeads& from, int64_t head, const int64_t* columns,
                        bool contiguous) {
  float* to = AlignedFloats(&decoded_, WidenedStride() * kBlockTokens);
  for (int64_t i = 0; i < block_.count; ++i, to += WidenedStride()) {
    StoredRowsView row = {block_.rows[i], nullptr, nullptr, 0, 0};
    if (from.scales != nullptr) {
      const int64_t column = contiguous ? columns[0] + i : columns[i];
      const int64_t scales = head * from.scale_head_stride + column * from.scale_stride;
      row.scales = from.scales + scales;
      if (from.biases != nullptr) row.biases = from.biases + scales;
    }
    if (in_basis_) {
      codec_.DecodeInBasis(row, 1, to);
    } else {
      codec_.Decode(row, 1, to);
    }
    std::fill(to + dim_, to + PaddedDim(dim_), 0.0f);
    block_.rows[i] = reinterpret_cast<const std::byte*>(to);
  }
}

void BlockStage::TakeScales(const StoredHeads& from, int64_t head, const int64_t* columns,
                            int64_t count, bool contiguous, const AttentionKernels& kernels,
                            const HeadGroupScales::Head& group_scales) {
  // Aligned: vectors that cross cache lines store and load slowly.
  float* scales = AlignedFloats(&scales_, 3 * groups_ * kBlockTokens);
  float* biases = scales + groups_ * kBlockTokens;
  float* by_token = biases + groups_ * kBlockTokens;
  const int64_t of_head = head * from.scale_head_stride;
  StoredScales stored = {
      scale_dtype_, from.scales + of_head, from.scale_stride, columns, contiguous, count, groups_};
  const bool has_biases = HasBiases(kind_);
  const std::byte* of_biases = has_biases ? from.biases + of_head : nullptr;
  constexpr int64_t kFirst = 0;
  if (group_scales.scales != nullptr) {
    stored = {scale_dtype_, group_scales.scales, scale_bytes(), &kFirst, true, count, groups_};
    of_biases = group_scales.biases;
  }
  if (scales_at_ != 0) {
    stored.from = from.codes + head * from.code_head_stride + scales_at_;
    stored.stride = from.code_stride;
    of_biases = stored.from + SizeInBytes(scale_dtype_);
  }
  if (given_scales_) {
    std::fill_n(scales, kBlockTokens, given_scales_->OfHead(head).scale);
  } else {
    kernels.widen_scales(stored, by_token, scales);
  }
  if (has_biases) {
    stored.from = of_biases;
    kernels.widen_scales(stored, by_token, biases);
  } else {
    biases = scales;
  }
  block_.scales_in_range =
      !has_biases || scale_dtype_ == DType::kFloat16 || ScalesInRange(scales, count, groups_);
  block_.scales = scales;
  block_.biases = biases;
}

// Codes of the second half follow those of the first, its scales likewise.
void BlockStage::SetHalves() {
  block_.dim /= 2;
  block_.groups /= 2;
  high_.kind = block_.kind;
  high_.dim = block_.dim;
  high_.group = block_.group;
  high_.groups = block_.groups;
  high_.count = block_.count;
  high_.scales = high_.biases = block_.scales + block_.groups * kBlockTokens;
  high_.centroids = block_.centroids + 16;
  for (int64_t i = 0; i < block_.count; ++i) high_.rows[i] = block_.rows[i] + low_bytes_;
  block_.high = &high_;
}

// Rows begin with the codes of their first block.
void BlockStage::TakeScalesOfBlocks(const AttentionKernels& kernels) {
  float* scales = AlignedFloats(&scales_, 3 * groups_ * kBlockTokens);
  const auto widen = [&](int64_t offset, float* to) {
    uint16_t* halves = halves_.data();
    const int64_t apart = fixed_.group_bytes;
    int64_t g = 0;
    for (; g + 4 <= groups_; g += 4) {
      GatherHalves<4>(block_, offset - fixed_.first_code + g * apart, apart,
                      halves + g * kBlockTokens);
    }
    for (; g < groups_; ++g) {
      GatherHalves<1>(block_, offset - fixed_.first_code + g * apart, apart,
                      halves + g * kBlockTokens);
    }
    // All groups as one, whose last tokens need not be there.
    constexpr int64_t kFirst = 0;
    constexpr auto kHalf = static_cast<int64_t>(sizeof(*halves));
    const int64_t count = (groups_ - 1) * kBlockTokens + block_.count;
    kernels.widen_scales(
        {scale_dtype_, reinterpret_cast<std::byte*>(halves), kHalf, &kFirst, true, count, 1},
        nullptr, to);
  };
  widen(0, scales);
  block_.scales = block_.biases = scales;
  block_.scales_in_range = true;
  if (!fixed_.has_biases) return;
  float* biases = scales + groups_ * kBlockTokens;
  widen(sizeof(uint16_t), biases);
  block_.biases = biases;
}

void BlockStage::Take(const StoredHeads& from, int64_t head, const int64_t* columns, int64_t count,
                      bool contiguous, As as, const AttentionKernels& kernels,
                      const HeadGroupScales::Head& group_scales) {
  block_.kind = kind_;
  block_.dim = dim_;
  block_.group = group_;
  block_.groups = groups_;
  block_.count = count;
  block_.centroids = centroids_.data();
  block_.high = nullptr;
  block_.group_bytes = fixed_.group_bytes;
  block_.code_offset = fixed_.offset;
  block_.has_biases = fixed_.has_biases;
  StopPrefetch();
  const std::byte* codes = from.codes + head * from.code_head_stride + fixed_.first_code;
  if (contiguous) {
    FillRows(codes + columns[0] * from.code_stride, from.code_stride, count, block_.rows);
  } else {
    for (int64_t i = 0; i < count; ++i) block_.rows[i] = codes + columns[i] * from.code_stride;
  }
  if (decodes_) {
    codec_.SetHead(head);
    Decode(from, head, columns, contiguous);
  }
  if (fixed_.in_blocks) {
    TakeScalesOfBlocks(kernels);
  } else if (scaled_) {
    TakeScales(from, head, columns, count, contiguous, kernels, group_scales);
  }
  if (bits_ != 0) {
    UnpackCodes(bits_, block_.rows, count, dim_, codes_.data());
    for (int64_t i = 0; i < count; ++i) block_.rows[i] = codes_.data() + i * dim_;
  }
  if (HasHalves(kind_)) SetHalves();
  block_.transposed = nullptr;
  if (as == As::kStored) return;
  const int64_t padded = PaddedDim(dim_);
  // f32 without padding and packed codes are transposed from where they are stored.
  const bool as_stored = kind_ == RowKind::kFloat32 ? padded == dim_ : IsFactored(kind_);
  if (as == As::kFloats || !as_stored) Widen(kernels);
  if (as == As::kTransposed) {
    float* transposed = AlignedFloats(&transposed_, padded * kBlockTokens);
    kernels.Of(block_.kind).transpose(block_, transposed);
    block_.transposed = transposed;
  }
}

void BlockStage::MakeRoom(bool floats, bool transposed) {
  if (floats) AlignedFloats(&values_, WidenedStride() * kBlockTokens);
  if (transposed) AlignedFloats(&transposed_, PaddedDim(dim_) * kBlockTokens);
}

void BlockStage::Widen(const AttentionKernels& kernels) {
  // Four interleaved rows of codes are as long as one of floats.
  const bool interleaves = IsFactored(kind_) && kernels.IsFixedPoint();
  const int64_t stride = interleaves ? dim_ / kFixedCodes : WidenedStride();
  float* to = AlignedFloats(&values_, stride * kBlockTokens);
  kernels.Of(kind_).widen(block_, to, stride);
  block_.kind = IsFactored(kind_) ? RowKind::kFactoredWidened : RowKind::kFloat32;
  block_.dim = PaddedDim(dim_);
  block_.high = nullptr;
  for (int64_t i = 0; i < block_.count; ++i) {
    block_.rows[i] = reinterpret_cast<const std::byte*>(to + i * stride);
  }
}

void SelectedRows::MakeRoom(int64_t groups) { AlignedFloats(&scales_, 2 * kBlockTokens * groups); }

const BlockRows& SelectedRows::Select(const BlockRows& block, uint64_t present, uint64_t places) {
  const int64_t floats = 2 * kBlockTokens * block.groups;
  const bool scaled = HasScales(block.kind);
  float* scales =
      scaled ? AlignedFloats(&scales_, block.high == nullptr ? floats : 2 * floats) : nullptr;
  Copy(block, present, places, scales, &rows_);
  rows_.high = nullptr;
  if (block.high != nullptr) {
    Copy(*block.high, present, places, scales + floats, &high_);
    rows_.high = &high_;
  }
  return rows_;
}

void SelectedRows::Copy(const BlockRows& block, uint64_t present, uint64_t places, float* scales,
                        BlockRows* to) {
  to->kind = block.kind;
  to->dim = block.dim;
  to->group = block.group;
  to->groups = block.groups;
  to->centroids = block.centroids;
  to->scales_in_range = block.scales_in_range;
  to->group_bytes = block.group_bytes;
  to->code_offset = block.code_offset;
  to->has_biases = block.has_biases;
  to->transposed = nullptr;
  float* biases = scales == nullptr ? nullptr : scales + kBlockTokens * block.groups;
  to->scales = scales;
  to->biases = biases;
  int64_t count = 0;
  for (uint64_t rest = places; rest != 0; rest &= rest - 1) {
    const uint64_t below = (rest & -rest) - 1;
    const auto i = static_cast<int64_t>(std::popcount(present & below));
    to->rows[count++] = block.rows[i];
    if (scales == nullptr) continue;
    for (int64_t g = 0; g < block.groups; ++g) {
      scales[g * kBlockTokens + count - 1] = block.scale(i, g);
      biases[g * kBlockTokens + count - 1] = block.bias(i, g);
    }
  }
  to->count = count;
}

}  // namespace kvcheck::optimized
