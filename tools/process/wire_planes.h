// Stored vectors on the pipe: an entry of STATE (protocol.md) is a list of arrays, one per plane of
// the format, (rows, heads, columns, elements) each; a parameter (PlaneScope::kTensor) is
// (elements).

#ifndef TOOLS_PROCESS_WIRE_PLANES_H_
#define TOOLS_PROCESS_WIRE_PLANES_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "reference/spec/cache_implementation.h"
#include "tools/process/wire_message.h"
#include "tools/process/wire_writer.h"

namespace kvcheck {

struct VectorExtents {
  int64_t rows, heads, columns;
};

void WritePlanes(std::string_view key, const Planes& planes,
                 const std::array<StoredPlane, kMaxPlanes>& stored, const VectorExtents& all,
                 WireWriter& writer);

// The arrays of the planes. name: the entry's, format: the text of the format that has the planes,
// for messages. *columns: -1 where not known yet.
// Errors: WireError for other arrays, or another number of columns.
std::vector<WireArray> ReadPlanes(const WireValue& list, std::string_view name,
                                  const Planes& planes, std::string_view format, int64_t rows,
                                  int64_t heads, int64_t* columns);

// "f32 (2, 3)".
std::string ShapeText(const WireArray& array);

// Agrees on the number of columns of a state. Errors: WireError.
void TakeColumns(int64_t of_array, std::string_view name, int64_t* columns);

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_WIRE_PLANES_H_
