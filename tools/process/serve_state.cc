#include <array>

#include "reference/spec/token_groups.h"
#include "tools/process/serve_cache.h"
#include "tools/process/wire_planes.h"

namespace kvcheck {
namespace {

void PutMask(std::string_view key, const uint64_t* bits, std::span<const int64_t> extents,
             int64_t words, WireWriter& writer) {
  writer.Key(key);
  std::span<std::byte> to = writer.Array(DType::kBool, extents);
  const auto columns = static_cast<size_t>(extents.back());
  for (size_t i = 0; i < to.size(); ++i) {
    const size_t c = i % columns;
    const uint64_t word = bits[i / columns * static_cast<size_t>(words) + c / 64];
    to[i] = static_cast<std::byte>(word >> (c % 64) & 1);
  }
}

void PutKnown(std::string_view key, Known known, WireWriter& writer) {
  if (known == Known::kCannotTell) return;
  writer.Key(key);
  writer.Bool(known == Known::kYes);
}

void PutNumber(std::string_view key, int64_t number, WireWriter& writer) {
  if (number == StepView::kUnknown) return;
  writer.Key(key);
  writer.Integer(number);
}

}  // namespace

void WriteState(Cache& cache, const CacheSetup& setup, WireWriter& writer) {
  cache.PoisonUnused();
  StepView view;
  cache.Observe(&view);
  const auto rows = static_cast<size_t>(view.rows);
  writer.StartMap();
  writer.Key("rows");
  writer.Integer(view.rows);
  writer.Key("queries");
  writer.Integer(view.queries);
  const auto text = [&](std::string_view key, const std::string& value) {
    writer.Key(key);
    writer.Text(value);
  };
  if (view.layout != nullptr) text("layout", Print(*view.layout));
  text("k_format", Print(view.k.format));
  text("v_format", Print(view.v.format));
  const bool shows = (view.k.AreShown() && view.v.AreShown()) || view.columns * view.rows == 0;
  const VectorExtents all = {view.rows, setup.kv_heads, view.columns};
  if (shows) {
    WritePlanes("k", TokenPlanesOf(view.k.format, setup.k_dim), view.k.planes, all, writer);
    WritePlanes("v", TokenPlanesOf(view.v.format, setup.v_dim), view.v.planes, all, writer);
    const std::array<int64_t, 3> visible = {view.rows, view.queries, view.columns};
    const std::array<int64_t, 2> retained = {view.rows, view.columns};
    const int64_t words = view.WordsPerRow();
    if (view.visible != nullptr) PutMask("visible", view.visible, visible, words, writer);
    if (view.retained != nullptr) PutMask("retained", view.retained, retained, words, writer);
  }
  if (view.retained == nullptr || !shows) {
    std::vector<int64_t> held;
    for (int64_t b = 0; b < view.rows; ++b) held.push_back(cache.RetainedTokens(b));
    bool known = true;
    for (const int64_t count : held) known = known && count != StepView::kUnknown;
    if (known) {
      writer.Key("held");
      writer.Integers(held);
    }
  }
  if (view.offsets != nullptr) {
    writer.Key("offsets");
    writer.Integers({view.offsets, rows});
  }
  if (view.unfed_padding != nullptr) {
    writer.Key("unfed");
    writer.Integers({view.unfed_padding, rows});
  }
  PutNumber("size", view.size, writer);
  PutNumber("live_bytes", view.live_bytes, writer);
  PutNumber("capacity_bytes", view.capacity_bytes, writer);
  PutKnown("empty", view.empty, writer);
  PutKnown("trimmable", view.trimmable, writer);
  PutKnown("pending", view.pending, writer);
  writer.EndMap();
}

}  // namespace kvcheck
