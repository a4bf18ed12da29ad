// Draws what holds for a whole trace: layout, formats, heads and dimensions. Everything is small,
// so that a ring wraps and capacity grows within a few operations; every head_dim suits the formats
// and tells tokens apart.

#ifndef FUZZ_DRAW_TRACE_SETUP_H_
#define FUZZ_DRAW_TRACE_SETUP_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "fuzz/draw_trace.h"
#include "reference/data/generator.h"
#include "reference/spec/trace.h"

namespace kvcheck {

// The formats of caches whose vectors have one type.
struct TypedFormats {
  DType x = DType::kFloat32;
  uint64_t weight = 0;          // how often the type is drawn, beside the others
  std::vector<KvFormat> plain;  // cheap formats
  std::vector<KvFormat> coded;  // those that need a head_dim of 32 and more
};

// What options allow of one space, read once.
struct TraceSpace {
  std::vector<int> layouts;  // of LayoutVariants()
  std::vector<TypedFormats> types;
  bool same_format = false;
  std::vector<std::pair<KvFormat, KvFormat>> pairs;  // of all types
  SpaceRows rows = SpaceRows::kAny;
  bool padding = true;
  bool same_dims = false;
  bool grouped = true;
  bool empty_batch = true;
  bool window = true;
  bool sinks = true;
  uint32_t operations = 0;  // bit per CacheOpKind
  std::vector<Damage> damages;
  int64_t max_operations = 0;
};

// At least one. Errors: as of TraceDrawer.
std::vector<TraceSpace> ReadSpaces(const TraceDrawOptions& options);

struct DrawnSetup {
  CacheSetup setup;
  bool single = false;  // no cache of the trace has more than one row
  bool large = false;   // appends of more than 64 columns are drawn
  // What to_quantized and `new` may name: the allowed formats that fit both dimensions.
  std::vector<KvFormat> formats;
};

// The format of V beside this one of K, where the space leaves no other; nullopt where it does.
// Draws where several go with it.
std::optional<KvFormat> ValueBeside(const TraceSpace& space, const KvFormat& k, Generator* random);

// Layouts and rows go round with the index, so that every few traces visit them all. Reuses *drawn.
void DrawSetup(const TraceSpace& space, uint64_t index, Generator* random, DrawnSetup* drawn);

// A legal layout of the kind, with small numbers.
CacheLayout DrawLayout(int kind, Generator* random);

}  // namespace kvcheck

#endif  // FUZZ_DRAW_TRACE_SETUP_H_
