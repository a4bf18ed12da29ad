// Sorting by a key that leaves what has the same key in its order. std::stable_sort and
// std::stable_partition of libstdc++ 12 use what clang 19 reports as deprecated.

#ifndef TOOLS_CAMPAIGN_SORT_STABLY_H_
#define TOOLS_CAMPAIGN_SORT_STABLY_H_

#include <cstddef>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

namespace kvcheck {

// key(item): what is compared by <.
template <typename T, typename Key>
void SortStably(std::vector<T>* items, const Key& key) {
  std::multimap<std::decay_t<std::invoke_result_t<Key, const T&>>, T> sorted;
  for (T& item : *items) {
    auto of_item = key(std::as_const(item));
    sorted.emplace(std::move(of_item), std::move(item));
  }
  size_t next = 0;
  for (auto& [of_item, item] : sorted) (*items)[next++] = std::move(item);
}

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_SORT_STABLY_H_
