// What the failing tensors of two files have in common, read off their names: "all layers from 12
// on", "only values, never keys". And whether one file holds the other's tensors in another order:
// "layer i of GOT equals layer i+1 of GOLD", "k_proj and v_proj are swapped". Every sentence is
// true of all tensors that were compared; what shows no pattern gives none.
//
// Names are cut into words at "/" and ".", and into letters and digits. A place in a name is what
// stands before it, numbers written "#": in "/model.layers.7.k" the 7 stands after
// "/model.layers." and the k after "/model.layers.#.". A place of numbers with more than two of
// them is an index, any other place with several words is a choice (keys or values).
//
// An index is called by the word before it where that says what is counted: layers, heads, blocks,
// experts and the like. Of "/a.3.b" nothing says that 3 is a layer; it is an index at level 2 of
// the name 'a.#.b'. Levels are what "/" and "." separate, from 1.

#ifndef TOOLS_COMPARE_ACROSS_TENSORS_H_
#define TOOLS_COMPARE_ACROSS_TENSORS_H_

#include <functional>
#include <string>
#include <vector>

namespace kvcheck {

struct TensorOutcome {
  std::string name;  // of GOLD
  bool failed = false;
};

// Sentences about which tensors fail; empty when none or all of them do, or only one was compared.
std::vector<std::string> DescribeAcrossTensors(const std::vector<TensorOutcome>& outcomes);

// Whether GOT's tensor of the second name (of GOLD, before which GOT's was renamed) has exactly the
// type, shape and bytes of GOLD's tensor of the first.
using TensorsEqual = std::function<bool(const std::string& gold, const std::string& got)>;

// Sentences about the order of tensors. looks_equal sees a sample and refuses most guesses cheaply;
// are_equal reads all, and is only asked where every sample of a guess agrees. A tensor that fails
// and equals some other one by chance (all zeros) is no pattern: at least two tensors must agree.
std::vector<std::string> DescribeOrder(const std::vector<TensorOutcome>& outcomes,
                                       const TensorsEqual& looks_equal,
                                       const TensorsEqual& are_equal);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_ACROSS_TENSORS_H_
