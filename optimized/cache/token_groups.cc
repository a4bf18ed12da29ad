#include "optimized/cache/token_groups.h"

#include <algorithm>
#include <cstring>

#include "reference/spec/token_groups.h"

namespace kvcheck::optimized {

void TokenGroups::Start(const KvFormat& format, DType from, int64_t dim, int64_t heads,
                        bool is_key) {
  is_used_ = HasResidual(format);
  if (!is_used_) return;
  format_ = format;
  group_ = TokenGroupOf(format);
  residual_tokens_ = ResidualOf(format);
  rolls_ = ResidualRolls(format);
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
    // Of a residual that rolls all of these entries hold a token, or none does.
    if (rolls_ && position >= residual_tokens_) {
      CodeTokens(store, row, position - residual_tokens_, piece);
    }
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
    if (!rolls_ && held + piece == residual_tokens_) Code(store, row, position - residual_tokens_);
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

void TokenGroups::CodeTokens(ColumnStore* store, int64_t row, int64_t position, int64_t count) {
  const std::byte* from = store->At(planes_.residual, row, position % residual_tokens_);
  StoredRows to = store->Vectors(planes_.first, row, position);
  for (int64_t h = 0; h < heads_; ++h) {
    groups_.Encode(from + h * residual_.bytes().codes, store->shape(planes_.residual).bytes, count,
                   to);
    to.NextHead(groups_.bytes());
  }
}

void TokenGroups::DecodeGroups(const ColumnStore& store, int64_t row, int64_t closed,
                               float* values) const {
  const int64_t token = heads_ * dim_;
  if (group_ == 1) {
    if (closed == 0) return;
    StoredRowsView from = store.Vectors(planes_.first, row, 0);
    from.code_stride = groups_.bytes().codes;  // head after head, token after token
    from.scale_stride = groups_.bytes().scales;
    groups_.Decode(from, closed * heads_, values);
    return;
  }
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
}

void TokenGroups::Decode(const ColumnStore& store, int64_t row, int64_t tokens,
                         float* values) const {
  int64_t recent = store.shape(planes_.residual).Entries(tokens);
  const int64_t closed = tokens - recent;
  DecodeGroups(store, row, closed, values);
  values += closed * heads_ * dim_;
  // Up to the end of the residual, and what has wrapped.
  for (int64_t held = closed % residual_tokens_; recent > 0; held = 0) {
    const int64_t piece = std::min(recent, residual_tokens_ - held);
    StoredRowsView from;
    from.codes = store.At(planes_.residual, row, held);
    from.code_stride = widened_.bytes().codes;  // head after head, token after token
    widened_.Decode(from, piece * heads_, values);
    values += piece * heads_ * dim_;
    recent -= piece;
  }
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
    // Tokens that are coded by themselves have a plane for vectors alone.
    const bool has_codes = !rolls_ || !is_last;
    std::vector<std::byte>& array = shown_[i];
    array.assign(static_cast<size_t>(rows * columns * heads_ * bytes), std::byte{0});
    const int plane = planes_.first + static_cast<int>(i);
    const auto group_bytes = static_cast<int64_t>(of_group[i].Bytes());
    for (int64_t b = 0; b < rows; ++b) {
      const int64_t count = tokens[static_cast<size_t>(b)];
      const int64_t closed = count - store.shape(planes_.residual).Entries(count);
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t h = 0; h < heads_; ++h) {
          std::byte* to = array.data() + ((b * columns + t) * heads_ + h) * bytes;
          if (t < closed && has_codes) {
            std::memcpy(to,
                        store.At(plane, b, t / group_) + h * group_bytes +
                            (per_token ? t % group_ * bytes : 0),
                        static_cast<size_t>(bytes));
          } else if (t >= closed && is_last) {
            // Code 0, scale 0: the value itself is the zero of its group, or the vector.
            std::memcpy(to, store.At(planes_.residual, b, t % residual_tokens_) + h * bytes,
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
