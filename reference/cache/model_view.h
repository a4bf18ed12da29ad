// A state of the model as a StepView: its retained tokens as columns, aligned to the right, all
// rows in one array; what holds no token is all ones.

#ifndef REFERENCE_CACHE_MODEL_VIEW_H_
#define REFERENCE_CACHE_MODEL_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/cache/model_state.h"
#include "reference/cache/rules.h"
#include "reference/cache/vector_table.h"

namespace kvcheck {

// Visible, and what a replaced rule makes of it.
TokenRange VisibleUnder(const CacheRules& rules, const ModelState& state, size_t row,
                        int64_t position);

class ModelView {
 public:
  // *view refers to this object and to the state until the next call.
  void Show(const ModelState& state, const CacheSetup& setup, const VectorTable& table,
            const CacheRules& rules, StepView* view);

 private:
  // Shapes: array (rows, heads, columns, bytes of a vector).
  void Fill(const StoredVectors& vectors, bool is_key, size_t columns,
            std::vector<std::byte>* array) const;

  const ModelState* state_ = nullptr;
  const CacheSetup* setup_ = nullptr;
  const VectorTable* table_ = nullptr;
  std::vector<std::byte> k_array_, v_array_;
  std::vector<uint64_t> retained_, visible_;
  std::vector<int64_t> offsets_, unfed_;
};

}  // namespace kvcheck

#endif  // REFERENCE_CACHE_MODEL_VIEW_H_
