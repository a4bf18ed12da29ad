#include "optimized/cache/token_groups.h"

#include <algorithm>
#include <cstring>

#include "reference/spec/token_groups.h"

namespace kvcheck::optimized {

void TokenGroups::Start(const KvFormat& format, DType from, int64_t dim, int64_t heads,
                        bool is_key) {
  group_ = TokenGroupOf(format);
  if (!IsUsed()) return;
  format_ = format;
  residual_tokens_ = ResidualOf(format);
  dim_ = dim;
  heads_ = heads;
  planes_ = PlanesOfPart(is_key);
  const DType row_type = RowDType(format);
  groups_.Start(format, row_type, group_ * dim);
  residual_.Start(PlainFormat{row_type}, from, dim);
  widened_.Start(PlainFormat{row_type}, row_type, dim);
}

void TokenGroups::Append(ColumnStore* store, int64_t row, int64_t position, int64_t count,
                         const std::byte* x, int64_t head_stride, int64_t stride) {
  while (count > 0) {
    const int64_t held = position % residual_tokens_;
    const int64_t piece = std::min(count, residual_tokens_ - held);
    StoredRows to;
    to.codes = store->At(planes_.residual, row, held);
    to.code_stride = store->shape(planes_.residual).bytes;
    for (int64_t h = 0; h < heads_; ++h) {
      residual_.Encode(x + h * head_stride, stride, piece, to);
      to.NextHead(residual_.bytes());
    }
    position += piece;
    count -= piece;
    x += piece * stride;
    if (held + piece == residual_tokens_) Code(store, row, position - residual_tokens_);
  }
}

void TokenGroups::Code(ColumnStore* store, int64_t row, int64_t closed) {
  const int64_t vector = residual_.bytes().codes;
  tokens_.resize(static_cast<size_t>(group_ * vector));
  for (int64_t first = 0; first < residual_tokens_; first += group_) {
    StoredRows to = store->Vectors(planes_.first, row, (closed + first) / group_);
    for (int64_t h = 0; h < heads_; ++h) {
      for (int64_t t = 0; t < group_; ++t) {
        std::memcpy(tokens_.data() + t * vector,
                    store->At(planes_.residual, row, first + t) + h * vector,
                    static_cast<size_t>(vector));
      }
      groups_.Encode(tokens_.data(), 0, 1, to);
      to.NextHead(groups_.bytes());
    }
  }
}

void TokenGroups::Decode(const ColumnStore& store, int64_t row, int64_t tokens,
                         float* values) const {
  const int64_t closed = tokens - tokens % residual_tokens_;
  const int64_t token = heads_ * dim_;
  values_.resize(static_cast<size_t>(group_ * dim_));
  for (int64_t first = 0; first < closed; first += group_) {
    StoredRowsView from = store.Vectors(planes_.first, row, first / group_);
    for (int64_t h = 0; h < heads_; ++h) {
      groups_.Decode(from, 1, values_.data());
      from.NextHead(groups_.bytes());
      for (int64_t t = 0; t < group_; ++t) {
        std::copy_n(values_.data() + t * dim_, dim_, values + (first + t) * token + h * dim_);
      }
    }
  }
  StoredRowsView recent;
  recent.codes = store.At(planes_.residual, row, 0);
  recent.code_stride = widened_.bytes().codes;  // head after head, token after token
  widened_.Decode(recent, (tokens - closed) * heads_, values + closed * token);
}

StoredVectors TokenGroups::Show(const ColumnStore& store, std::span<const int64_t> tokens,
                                int64_t columns) {
  StoredVectors shown;
  shown.format = format_;
  const Planes planes = TokenPlanesOf(format_, dim_);
  const Planes of_group = PlanesOf(format_, group_ * dim_);
  const auto rows = static_cast<int64_t>(tokens.size());
  for (size_t i = 0; i < planes.size(); ++i) {
    const auto bytes = static_cast<int64_t>(planes[i].Bytes());
    const bool per_token = of_group[i].elements == group_ * planes[i].elements;
    const bool is_last = i + 1 == planes.size();
    std::vector<std::byte>& array = shown_[i];
    array.assign(static_cast<size_t>(rows * columns * heads_ * bytes), std::byte{0});
    const int plane = planes_.first + static_cast<int>(i);
    const auto group_bytes = static_cast<int64_t>(of_group[i].Bytes());
    for (int64_t b = 0; b < rows; ++b) {
      const int64_t count = tokens[static_cast<size_t>(b)];
      const int64_t closed = count - count % residual_tokens_;
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t h = 0; h < heads_; ++h) {
          std::byte* to = array.data() + ((b * columns + t) * heads_ + h) * bytes;
          if (t < closed) {
            std::memcpy(to,
                        store.At(plane, b, t / group_) + h * group_bytes +
                            (per_token ? t % group_ * bytes : 0),
                        static_cast<size_t>(bytes));
          } else if (is_last) {
            // Code 0, scale 0: the value itself is the zero of its group.
            std::memcpy(to, store.At(planes_.residual, b, t - closed) + h * bytes,
                        static_cast<size_t>(bytes));
          }
        }
      }
    }
    shown.planes[i] = {array.data(), {columns * heads_ * bytes, bytes, heads_ * bytes}};
  }
  return shown;
}

}  // namespace kvcheck::optimized
