#include "row_probe.h"

#include "reference/cache/vector_codec.h"
#include "reference/data/token_rows.h"
#include "reference/spec/error.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

constexpr uint64_t kSeed = 11;

std::string TokenAt(const StepView& view, const CacheSetup& setup, int64_t row, int64_t column) {
  std::string bytes;
  for (const bool is_key : {true, false}) {
    const StoredVectors& vectors = is_key ? view.k : view.v;
    const Planes planes = TokenPlanesOf(vectors.format, is_key ? setup.k_dim : setup.v_dim);
    for (int64_t h = 0; h < setup.kv_heads; ++h) {
      for (size_t i = 0; i < planes.size(); ++i) {
        const std::byte* at = vectors.planes[i].At(row, h, column);
        bytes.append(reinterpret_cast<const char*>(at), planes[i].Bytes());
      }
    }
  }
  return bytes;
}

TokenSet TokensOf(const StepView& view, const CacheSetup& setup, int64_t row,
                  const uint64_t* bits) {
  TokenSet tokens;
  for (int64_t c = 0; c < view.columns; ++c) {
    if ((bits[c / 64] >> (c % 64) & 1u) != 0) tokens.insert(TokenAt(view, setup, row, c));
  }
  return tokens;
}

}  // namespace

void CheckOk(const OpResult& result) { KVCHECK_CHECK(result.ok(), std::string(result.message)); }

RowProbe::RowProbe(const CacheSetup& setup) : setup_(setup) { CheckOk(factory_.Start(setup)); }

std::unique_ptr<Cache> RowProbe::New(int64_t rows, const std::vector<int64_t>& padding) {
  std::unique_ptr<Cache> out;
  CheckOk(factory_.New(setup_.layout, setup_.k, setup_.v, rows, padding, &out));
  return out;
}

std::unique_ptr<Cache> RowProbe::Merge(const std::vector<const Cache*>& caches) {
  std::unique_ptr<Cache> out;
  CheckOk(factory_.Merge(caches, &out));
  return out;
}

std::unique_ptr<Cache> RowProbe::Copy(const Cache& cache) {
  std::unique_ptr<Cache> out;
  CheckOk(cache.CopyTo(&out));
  return out;
}

std::unique_ptr<Cache> RowProbe::Extract(const Cache& cache, int64_t row) {
  std::unique_ptr<Cache> out;
  CheckOk(cache.Extract(row, &out));
  return out;
}

std::unique_ptr<Cache> RowProbe::SaveAndLoad(const Cache& cache) {
  MemoryStateStore store;
  CheckOk(cache.Save(&store, "s"));
  std::unique_ptr<Cache> out;
  CheckOk(factory_.Load(store, "s", &out));
  return out;
}

void RowProbe::Feed(Cache* cache, const std::vector<RowFeed>& rows, int64_t columns) {
  const auto element = static_cast<int64_t>(SizeInBytes(setup_.x));
  TokenColumns c;
  c.dtype = setup_.x;
  c.rows = static_cast<int64_t>(rows.size());
  c.kv_heads = setup_.kv_heads;
  c.columns = columns;
  c.k_dim = setup_.k_dim;
  c.v_dim = setup_.v_dim;
  const auto strides = [&](int64_t dim) {
    return VectorStrides{c.kv_heads * columns * dim * element, columns * dim * element,
                         dim * element};
  };
  c.k_strides = strides(c.k_dim);
  c.v_strides = strides(c.v_dim);
  std::vector<std::byte> k(static_cast<size_t>(c.rows * c.k_strides.row));
  std::vector<std::byte> v(static_cast<size_t>(c.rows * c.v_strides.row));
  const auto query_vector = static_cast<size_t>(setup_.k_dim * element);
  q_.resize(static_cast<size_t>(c.rows * setup_.query_heads * columns) * query_vector);
  for (int64_t b = 0; b < c.rows; ++b) {
    const RowFeed& feed = rows[static_cast<size_t>(b)];
    for (int64_t n = 0; n < columns; ++n) {
      const int64_t index = n - feed.padding;
      const bool is_token = index >= 0 && index < feed.tokens;
      const uint64_t token = TokenId(0, feed.label, feed.position + index);
      const auto fill = [&](TokenPart part, int64_t head, int64_t dim, std::byte* to) {
        if (is_token) {
          FillTokenVector(kSeed, token, head, part, setup_.x, dim, to);
        } else {
          FillPaddingVector(setup_.x, dim, to);
        }
      };
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        fill(TokenPart::kKey, h, c.k_dim,
             &k[static_cast<size_t>(b * c.k_strides.row + h * c.k_strides.head +
                                    n * c.k_strides.column)]);
        fill(TokenPart::kValue, h, c.v_dim,
             &v[static_cast<size_t>(b * c.v_strides.row + h * c.v_strides.head +
                                    n * c.v_strides.column)]);
      }
      for (int64_t h = 0; h < setup_.query_heads; ++h) {
        const auto at = static_cast<size_t>((b * setup_.query_heads + h) * columns + n);
        fill(TokenPart::kQuery, h, c.k_dim, &q_[at * query_vector]);
      }
    }
  }
  c.k = k.data();
  c.v = v.data();
  CheckOk(cache->Append(c));
  cache->PoisonUnused();
}

std::vector<RowStep> RowProbe::Append(Cache* cache, const std::vector<RowFeed>& rows,
                                      int64_t columns) {
  Feed(cache, rows, columns);
  const auto row_count = static_cast<int64_t>(rows.size());
  StepView view;
  cache->Observe(&view);
  AttendRequest request;
  request.dtype = setup_.x;
  request.rows = row_count;
  request.query_heads = setup_.query_heads;
  request.queries = columns;
  request.q = q_.data();
  request.scale = 0.125;
  const auto out_vector = static_cast<size_t>(setup_.v_dim) * SizeInBytes(setup_.x);
  std::vector<std::byte> out(static_cast<size_t>(row_count * setup_.query_heads * columns) *
                             out_vector);
  CheckOk(cache->Attend(request, out.data()));
  std::vector<RowStep> steps(rows.size());
  for (int64_t b = 0; b < row_count; ++b) {
    const RowFeed& feed = rows[static_cast<size_t>(b)];
    for (int64_t n = feed.padding; n < feed.padding + feed.tokens; ++n) {
      RowStep& step = steps[static_cast<size_t>(b)];
      step.visible.push_back(
          TokensOf(view, setup_, b, view.visible + (b * columns + n) * view.WordsPerRow()));
      std::string attention;
      for (int64_t h = 0; h < setup_.query_heads; ++h) {
        const auto at = static_cast<size_t>((b * setup_.query_heads + h) * columns + n);
        attention.append(reinterpret_cast<const char*>(&out[at * out_vector]), out_vector);
      }
      step.attention.push_back(attention);
    }
  }
  return steps;
}

RowStep RowProbe::AppendRow(Cache* cache, int64_t label, int64_t from, int64_t to) {
  return Append(cache, {{label, from, 0, to - from}}, to - from)[0];
}

std::vector<RowState> RowProbe::States(Cache* cache) {
  StepView view;
  cache->Observe(&view);
  std::vector<RowState> states;
  for (int64_t b = 0; b < view.rows; ++b) {
    states.push_back({view.offsets[b], view.unfed_padding[b],
                      TokensOf(view, setup_, b, view.retained + b * view.WordsPerRow())});
  }
  return states;
}

}  // namespace kvcheck
