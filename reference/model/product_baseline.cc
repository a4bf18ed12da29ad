#include "reference/model/product.h"

#define KVCHECK_PRODUCT ProductBaseline
#include "reference/model/product-inl.h"
