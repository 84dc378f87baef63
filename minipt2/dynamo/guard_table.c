/* Runs a table of guards over the dicts below one object: what guard_table.py writes, read in one call.

   Python's headers need not be installed, so the few names of CPython's stable C interface that are used stand here. The layout of
   PyObject is that of builds with a GIL, the only ones this is used on. DLTensor is the DLPack standard's. */
#include <stdint.h>
#include <string.h>

typedef struct { intptr_t count; void *type; } PyObject;
typedef struct { const char *name; PyObject *(*call)(PyObject *, PyObject *); int flags; const char *doc; } PyMethodDef;

extern void Py_IncRef(PyObject *), Py_DecRef(PyObject *), PyErr_Clear(void);
extern PyObject *PyErr_Occurred(void), *PyDict_GetItemWithError(PyObject *, PyObject *), *PyObject_GenericGetDict(PyObject *, void *),
    *PyObject_CallFunctionObjArgs(PyObject *, ...), *PyTuple_GetItem(PyObject *, intptr_t),
    *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
extern intptr_t PyObject_Size(PyObject *), PyTuple_Size(PyObject *);
extern int PyDict_Contains(PyObject *, PyObject *), PyDict_Next(PyObject *, intptr_t *, PyObject **, PyObject **),
    PyObject_RichCompareBool(PyObject *, PyObject *, int);
extern char *PyBytes_AsString(PyObject *);
extern double PyFloat_AsDouble(PyObject *);
extern char PyDict_Type, PyODict_Type, PyFloat_Type, PyTuple_Type, PyList_Type, PySet_Type;
extern PyObject _Py_TrueStruct, _Py_FalseStruct;

typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef int (*Read)(void *, DLTensor *);

typedef struct { int64_t op, from, into; PyObject *key, *expected; } Step; /* into: a register, a length, where a Meta lies */
typedef struct { const char *name; PyObject *(*get)(PyObject *, void *); void *set; const char *doc; void *closure; } PyGetSetDef;
typedef struct { PyObject head; void *type, *name, *qualname; PyGetSetDef *getset; } PyGetSetDescr;
typedef struct { int64_t steps, registers; Read read; PyGetSetDescr *requires_grad; PyObject *is_neg; } Header;
typedef struct { int64_t ndim, device_type, device_id, code, bits, lanes, requires_grad, lazy, numbers[]; } Meta; /* requires_grad: -1 is any */

enum { ITEM, OWN, TYPE, IS, SAME, KEYS, EMPTY, LENGTH, LACKS, HAS, ALIAS, NOT_ALIAS, TENSOR, ITEM_IS, ITEM_EMPTY };

static int is_dict(PyObject *o) { return o->type == &PyDict_Type || o->type == &PyODict_Type; }

/* Equal in type and value: literals and tuples of them only. */
static int same(PyObject *a, PyObject *b) {
    if (a == b) return 1;
    if (a->type != b->type) return 0;
    if (a->type == &PyFloat_Type) { /* bit by bit: a sign of zero is a difference */
        double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
        return memcmp(&x, &y, sizeof x) == 0;
    }
    if (a->type != &PyTuple_Type) return PyObject_RichCompareBool(a, b, 2) == 1;
    intptr_t n = PyTuple_Size(a);
    if (n != PyTuple_Size(b)) return 0;
    for (intptr_t k = 0; k < n; k++)
        if (!same(PyTuple_GetItem(a, k), PyTuple_GetItem(b, k))) return 0;
    return 1;
}

static int same_keys(PyObject *dict, PyObject *keys) {
    intptr_t n = PyTuple_Size(keys), at = 0, k = 0;
    PyObject *key, *value;
    if (dict->type != &PyDict_Type || PyObject_Size(dict) != n) return 0; /* an OrderedDict has an order of its own */
    while (PyDict_Next(dict, &at, &key, &value))
        if (!same(key, PyTuple_GetItem(keys, k++))) return 0;
    return 1;
}

static int is_empty(PyObject *o) {
    return (is_dict(o) || o->type == &PyList_Type || o->type == &PyTuple_Type || o->type == &PySet_Type) && PyObject_Size(o) == 0;
}

static int answers(PyObject *answer, int64_t expected) {
    if (answer == NULL) return 0;
    Py_DecRef(answer);
    return answer == (expected ? &_Py_TrueStruct : &_Py_FalseStruct);
}

static int same_tensor(PyObject *o, const Meta *m, const Header *h) {
    DLTensor t;
    if (h->read(o, &t) != 0) return 0;
    size_t bytes = m->ndim * sizeof(int64_t);
    return t.ndim == m->ndim && t.code == m->code && t.bits == m->bits && t.lanes == m->lanes && t.device_type == m->device_type &&
           t.device_id == m->device_id && memcmp(t.shape, m->numbers, bytes) == 0 && memcmp(t.strides, m->numbers + m->ndim, bytes) == 0 &&
           (m->requires_grad < 0 || answers(h->requires_grad->getset->get(o, h->requires_grad->getset->closure), m->requires_grad)) &&
           (!m->lazy || answers(PyObject_CallFunctionObjArgs(h->is_neg, o, NULL), 0));
}

static int holds(const Step *s, PyObject **r, const Header *h) {
    PyObject *v = r[s->from], *item;
    switch (s->op) {
    case ITEM:
        if (!is_dict(v) || !(r[s->into] = PyDict_GetItemWithError(v, s->key))) return 0;
        Py_IncRef(r[s->into]);
        return 1;
    case OWN: return (r[s->into] = PyObject_GenericGetDict(v, NULL)) != NULL;
    case TYPE: return v->type == s->expected;
    case IS: return v == s->expected;
    case SAME: return same(v, s->expected);
    case KEYS: return same_keys(v, s->expected);
    case EMPTY: return is_empty(v);
    case LENGTH: return PyObject_Size(v) == s->into;
    case LACKS: return is_dict(v) && PyDict_Contains(v, s->key) == 0;
    case HAS: return is_dict(v) && PyDict_Contains(v, s->key) == 1;
    case ALIAS: return v == r[s->into];
    case NOT_ALIAS: return v != r[s->into];
    case TENSOR: return same_tensor(v, (const Meta *)((const char *)h + s->into), h);
    case ITEM_IS: return is_dict(v) && PyDict_GetItemWithError(v, s->key) == s->expected;
    case ITEM_EMPTY: return is_dict(v) && (item = PyDict_GetItemWithError(v, s->key)) && is_empty(item);
    }
    return 0;
}

static PyObject *check(PyObject *table, PyObject *root) {
    const Header *h = (const Header *)PyBytes_AsString(table);
    const Step *steps = (const Step *)(h + 1);
    PyObject *r[h->registers];
    memset(r, 0, sizeof r);
    r[0] = root;
    int64_t k = 0;
    while (k < h->steps && holds(&steps[k], r, h)) k++;
    for (int64_t i = 1; i < h->registers; i++)
        if (r[i]) Py_DecRef(r[i]);
    if (PyErr_Occurred()) PyErr_Clear();
    PyObject *answer = k == h->steps ? &_Py_TrueStruct : &_Py_FalseStruct;
    Py_IncRef(answer);
    return answer;
}

static PyMethodDef method = {"guard_table", check, 8, "Whether every guard of a table holds below the object given."};

/* A builtin function of one argument that runs the table (bytes; kept alive by it). */
PyObject *guard_table(PyObject *table) { return PyCFunction_NewEx(&method, table, NULL); }

/* What the table would compare of a tensor: its size, stride, dtype and device, as numbers; their count, or -1. */
int64_t describe(Read read, PyObject *o, int64_t *out) {
    DLTensor t;
    if (read(o, &t) != 0 || t.ndim > 32) {
        PyErr_Clear();
        return -1;
    }
    int64_t head[6] = {t.ndim, t.device_type, t.device_id, t.code, t.bits, t.lanes};
    memcpy(out, head, sizeof head);
    for (int k = 0; k < t.ndim; k++) out[6 + k] = t.shape[k], out[6 + t.ndim + k] = t.strides[k];
    return 6 + 2 * t.ndim;
}
