// The smallest cache: one row, kept as it is given, that can be appended to, trimmed and copied.
//   kvcheck fuzz --impl ./small_example
//   kvcheck fuzz --impl './small_example --broken'      trims a token too few
#include "kvcheck_adapter.h"

using namespace kvcheck_adapter;

bool broken = false;

struct SmallCache : Cache {
  SmallCache(Array no_k, Array no_v) : k(std::move(no_k)), v(std::move(no_v)) {}
  void Append(const Array& new_k, const Array& new_v) override {
    CheckColumns(new_k, new_v);
    std::tie(k, v) = std::pair(Joined(k, new_k, 2), Joined(v, new_v, 2));  // both or neither
    step = new_k.extents[2];
  }
  int64_t Trim(int64_t count) override {
    if (count < 0) throw Refused("a negative number of tokens");
    count = std::min(count, k.extents[2]);
    const int64_t left = k.extents[2] - count + (broken && count > 1 ? 1 : 0);
    std::tie(k, v) = std::pair(Part(k, 2, 0, left), Part(v, 2, 0, left));
    step = 0;  // nobody asks for attention until the next append
    return count;
  }
  std::unique_ptr<Cache> Copy() const override { return std::make_unique<SmallCache>(k, v); }
  State Observe() const override { return StateOfOneRow(k, v, step); }

  Array k, v;        // (1, kv_heads, tokens, channels)
  int64_t step = 0;  // columns of the last append, while they can be asked about; a copy has none
};

struct Small : Adapter {
  Greeting Greet() override {
    CacheSpace space;
    space.layouts = {"linear"};
    space.formats = {"f32", "f16", "bf16"};
    space.rows = "single";
    space.padding = false;
    space.stored_as_given = true;
    space.operations = {"new", "append", "trim", "copy", "drop"};
    Greeting greeting{"small_example", "1", {"cache"}};
    greeting.cache_spaces = {space};
    return greeting;
  }
  void Start(const Setup& given) override { setup = given; }
  std::unique_ptr<Cache> New(const NewCache&) override {
    return std::make_unique<SmallCache>(Array(setup.x, {1, setup.kv_heads, 0, setup.k_dim}),
                                        Array(setup.x, {1, setup.kv_heads, 0, setup.v_dim}));
  }
  Setup setup;
};

int main(int argc, char** argv) {
  broken = argc > 1 && argv[1] == std::string("--broken");
  Small adapter;
  return Serve(adapter);
}
